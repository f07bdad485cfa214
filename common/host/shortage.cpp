#include "common/host/shortage.h"

#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <latch>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/base/text.h"
#include "common/host/resources.h"

namespace pushpull {

namespace {

std::string bytes_text(int64_t bytes) {
  constexpr std::array kUnits = {"bytes", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1000.0 && unit + 1 < kUnits.size(); ++unit) value /= 1000.0;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value,
                kUnits.at(unit));
  return text.data();
}

// Returns the bytes that the host can give without swapping, or nothing.
std::optional<int64_t> available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    int64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return std::nullopt;
}

std::optional<int64_t> soft_limit(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<int64_t>(limit.rlim_cur);
}

// Returns ": 2.1 GB of this host's memory are available, ulimit -v is 1.0 GB".
std::string memory_text() {
  std::string text;
  const auto add = [&text](const std::string& part) {
    text += (text.empty() ? ": " : ", ") + part;
  };
  if (const auto bytes = available_bytes()) {
    add(bytes_text(*bytes) + " of this host's memory are available");
  }
  if (const auto group = read_group_limits().memory) {
    add(group->file + " allows " + bytes_text(group->most) + ", of which " +
        bytes_text(group->used) + " are used");
  }
  if (const auto limit = soft_limit(RLIMIT_AS)) add("ulimit -v is " + bytes_text(*limit));
  if (const auto limit = soft_limit(RLIMIT_DATA)) add("ulimit -d is " + bytes_text(*limit));
  return text;
}

std::string threads_text() {
  std::string text;
  if (const auto limit = soft_limit(RLIMIT_NPROC))
    text += ": ulimit -u is " + std::to_string(*limit);
  if (const auto group = read_group_limits().pids) {
    text += (text.empty() ? ": " : ", ") + group->file + " allows " + std::to_string(group->most) +
            ", of which " + std::to_string(group->used) + " are used";
  }
  if (const auto limit = soft_limit(RLIMIT_AS)) {
    text += (text.empty() ? ": " : ", ") + std::string("ulimit -v is ") + bytes_text(*limit);
  }
  return text + "; raise that (docker --pids-limit, systemd TasksMax)";
}

Error no_memory(const std::bad_alloc& error) {
  const auto* const floats = dynamic_cast<const NoFloats*>(&error);
  const std::string what =
      floats == nullptr ? "memory"
                        : bytes_text(floats->bytes()) + " for weights, gradients or messages";
  return {ErrorCode::kDevice,
          "[memory] cannot allocate " + what + memory_text() +
              "; `pushpull models --job FILE` says how much a worker needs, more servers share the "
              "weights, a smaller micro-batch needs less"};
}

Error no_files(const std::string& why) {
  const auto limit = soft_limit(RLIMIT_NOFILE);
  return {
      ErrorCode::kDevice,
      "[files] " + why + ": ulimit -n is " + (limit ? std::to_string(*limit) : "unlimited") +
          "; raise the hard limit (ulimit -Hn, /etc/security/limits.conf, docker --ulimit nofile)"};
}

}  // namespace

std::optional<Error> shortage_of(const std::exception& error) {
  if (const auto* const memory = dynamic_cast<const std::bad_alloc*>(&error))
    return no_memory(*memory);
  int code = 0;
  if (const auto* const system = dynamic_cast<const std::system_error*>(&error)) {
    code = system->code().value();
  }
  // of libzmq's error_t, which this room does not know
  if (std::string_view(error.what()) == std::strerror(EMFILE)) code = EMFILE;
  if (code == EMFILE) return no_files("no descriptor is left");
  if (code == ENOMEM) return no_memory({});
  if (code == EAGAIN) {
    return Error(ErrorCode::kDevice, "[threads] a thread cannot be started" + threads_text());
  }
  return std::nullopt;
}

Error error_of(const std::exception& error) {
  if (const auto* const own = dynamic_cast<const Error*>(&error)) return *own;
  if (auto shortage = shortage_of(error)) return *std::move(shortage);
  return {ErrorCode::kInternal, std::string("[internal] ") + error.what()};
}

void check_descriptors(int64_t needed, const std::string& who) {
  const auto limit = soft_limit(RLIMIT_NOFILE);
  if (!limit || *limit >= needed) return;
  throw no_files(who + " needs " + std::to_string(needed) + " descriptors");
}

void check_threads(int needed, const std::string& who) {
  std::latch done(1);
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(needed));
  const auto end = [&] {
    done.count_down();
    threads.clear();
  };
  try {
    for (int i = 0; i < needed; ++i) threads.emplace_back([&done] { done.wait(); });
  } catch (const std::system_error&) {
    const size_t started = threads.size();
    end();
    throw Error(ErrorCode::kDevice, "[threads] " + who + " needs " + std::to_string(needed) +
                                        " threads, and " + std::to_string(started) +
                                        " can be started" + threads_text());
  }
  end();
}

}  // namespace pushpull
