#include "common/base/thread_pool.h"

#include <chrono>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

namespace {

constexpr auto kSpin = std::chrono::microseconds(30);
constexpr auto kSoon = std::chrono::microseconds(100);  // to sleep and wake up takes some of it
constexpr int64_t kManyTasks = 4;  // for each thread: one of them takes little of the time

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `value` is no longer `old`: spins for a while, then sleeps.
template <class T>
void wait_for_change(const std::atomic<T>& value, T old, std::chrono::microseconds spin) {
  const auto until = std::chrono::steady_clock::now() + spin;
  while (value.load(std::memory_order_acquire) == old) {
    for (int i = 0; i < 32; ++i) pause();
    if (std::chrono::steady_clock::now() < until) continue;
    value.wait(old, std::memory_order_acquire);  // a futex
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  PP_ASSERT(threads >= 1);
  helpers_.reserve(static_cast<size_t>(threads - 1));
  for (int t = 1; t < threads; ++t) helpers_.emplace_back([this, t] { help(t); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  batch_.fetch_add(1, std::memory_order_release);
  batch_.notify_all();
}

void ThreadPool::run(int64_t n, TaskRef task) {
  if (n <= 1 || helpers_.empty()) {
    for (int64_t i = 0; i < n; ++i) task(i, 0);
    return;
  }
  task_ = &task;
  tasks_ = n;
  next_.store(0, std::memory_order_relaxed);
  at_work_.store(0, std::memory_order_release);
  batch_.fetch_add(1, std::memory_order_release);
  // The thread that has brought the work is often still on its core. Helpers that are woken before it
  // sleeps are put on the caller's core, and wait there while the other one idles.
  if (n >= kManyTasks * threads()) work(0, 1);
  batch_.notify_all();
  work(0, n);
  uint32_t at_work = at_work_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
  while (at_work != kClosed) {
    wait_for_change(at_work_, at_work, kSpin);
    at_work = at_work_.load(std::memory_order_acquire);
  }
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::work(int thread, int64_t most) {
  try {
    for (; most > 0; --most) {
      const int64_t i = next_++;
      if (i >= tasks_) return;
      (*task_)(i, thread);
    }
  } catch (...) {
    if (!failed_.exchange(true)) error_ = std::current_exception();
  }
}

void ThreadPool::help(int thread) {
  uint32_t seen = 0;
  bool soon = true;
  while (true) {
    const auto idle = std::chrono::steady_clock::now();
    wait_for_change(batch_, seen, soon ? kSpin : std::chrono::microseconds(0));
    soon = std::chrono::steady_clock::now() - idle < kSoon;
    seen = batch_.load(std::memory_order_acquire);
    if (stop_) return;
    uint32_t at_work = at_work_.load(std::memory_order_relaxed);
    while ((at_work & kClosed) == 0 &&
           !at_work_.compare_exchange_weak(at_work, at_work + 1, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
    }
    if ((at_work & kClosed) != 0) continue;
    work(thread, tasks_);
    if (at_work_.fetch_sub(1, std::memory_order_release) == (kClosed | 1U)) at_work_.notify_one();
  }
}

}  // namespace pushpull
