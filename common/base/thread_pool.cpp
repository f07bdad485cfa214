#include "common/base/thread_pool.h"

#include <chrono>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

namespace {

constexpr auto kSpin = std::chrono::microseconds(30);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `value` is no longer `old`: spins briefly, then sleeps.
template <class T>
void wait_for_change(const std::atomic<T>& value, T old) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
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
  batch_.notify_all();
  work(0);
  uint32_t at_work = at_work_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
  while (at_work != kClosed) {
    wait_for_change(at_work_, at_work);
    at_work = at_work_.load(std::memory_order_acquire);
  }
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::work(int thread) {
  try {
    for (int64_t i = next_++; i < tasks_; i = next_++) (*task_)(i, thread);
  } catch (...) {
    if (!failed_.exchange(true)) error_ = std::current_exception();
  }
}

void ThreadPool::help(int thread) {
  uint32_t seen = 0;
  while (true) {
    wait_for_change(batch_, seen);
    seen = batch_.load(std::memory_order_acquire);
    if (stop_) return;
    uint32_t at_work = at_work_.load(std::memory_order_relaxed);
    while ((at_work & kClosed) == 0 &&
           !at_work_.compare_exchange_weak(at_work, at_work + 1, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
    }
    if ((at_work & kClosed) != 0) continue;
    work(thread);
    if (at_work_.fetch_sub(1, std::memory_order_release) == (kClosed | 1U)) at_work_.notify_one();
  }
}

}  // namespace pushpull
