// Threads that share the tasks of one caller, which works too. Between two batches they spin
// briefly, since the next batch usually follows at once, then sleep. One caller at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "common/base/parallel.h"

namespace pushpull {

class ThreadPool : public Parallel {
 public:
  // threads: including the caller's.
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const override { return static_cast<int>(helpers_.size()) + 1; }
  void run(int64_t n, TaskRef task) override;

 private:
  void help(int thread);
  void work(int thread);

  // Written by the caller while the batch is closed and no helper is at work.
  const TaskRef* task_ = nullptr;
  int64_t tasks_ = 0;
  std::exception_ptr error_;  // the first one thrown
  std::atomic<bool> failed_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> next_ = 0;
  std::atomic<uint32_t> batch_ = 0;  // number of the batch; helpers wait for it to change
  // Number of helpers at work, plus kClosed if no more may join: the caller does not wait for a
  // helper that wakes up late.
  static constexpr uint32_t kClosed = uint32_t{1} << 31U;
  std::atomic<uint32_t> at_work_ = kClosed;
  std::vector<std::jthread> helpers_;
};

}  // namespace pushpull
