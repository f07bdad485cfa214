// Runs a call that may never return, such as a name lookup or a write to a hanging file system,
// with a deadline. Plain function; any thread.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace pushpull {

// Returns the result of `call` or rethrows its exception. Returns empty if `call` does not return
// in time; its thread then continues detached, so `call` must own all data that it uses.
template <class Result>
std::optional<Result> within(double seconds, std::function<Result()> call) {
  auto promise = std::make_shared<std::promise<Result>>();
  std::future<Result> result = promise->get_future();
  std::thread([promise, call = std::move(call)] {
    try {
      promise->set_value(call());
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  if (result.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
    return std::nullopt;
  }
  return result.get();
}

}  // namespace pushpull
