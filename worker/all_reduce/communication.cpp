#include "worker/all_reduce/communication.h"

#include <chrono>
#include <utility>

namespace pushpull {

namespace {

constexpr int kServeMs = 200;

}  // namespace

Communication::Communication(Peers& peers, Collective& collective, Activity& activity)
    : peers_(peers), collective_(collective), activity_(activity), thread_([this] { loop(); }) {}

Communication::~Communication() {
  stopping_.store(true);
  peers_.stop();
  collective_.abort();
  wake_.wake();
}

int64_t Communication::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  wake_.wake();
  return ++posted_;
}

bool Communication::wait(int64_t ticket) {
  std::unique_lock lock(mutex_);
  const auto ended = [&] { return finished_ >= ticket || error_; };
  if (!done_.wait_for(lock, std::chrono::milliseconds(kLookMs), ended)) {
    activity_.wait([] { return std::string("the sums of the other workers"); });
    return false;
  }
  if (finished_ < ticket) std::rethrow_exception(error_);
  return true;
}

std::function<void()> Communication::take() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) {
    wake_.clear();
    return nullptr;
  }
  std::function<void()> work = std::move(queue_.front());
  queue_.pop_front();
  return work;
}

void Communication::run(const std::function<void()>& work, int64_t count) {
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (error) {
    error_ = error;
  } else {
    finished_ += count;
  }
  if (error || count > 0) done_.notify_all();
}

void Communication::loop() {
  while (!stopping_.load()) {
    const std::function<void()> work = take();
    run(work ? work : std::function<void()>([this] { peers_.serve(wake_, kServeMs); }),
        work ? 1 : 0);
    const std::lock_guard lock(mutex_);
    if (error_) return;
  }
}

}  // namespace pushpull
