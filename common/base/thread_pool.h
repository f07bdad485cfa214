// Threads that share the tasks of one caller, who takes part. Between two batches they spin for a
// moment, since the next one mostly follows at once, then sleep. One caller at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "common/base/parallel.h"

namespace pushpull {

// Threads that a server's updates can use: `asked`, or, where that is 0, one for each core that
// this process may run on, up to a number beyond which memory is the bound.
int useful_threads(int64_t asked);

class ThreadPool : public Parallel {
 public:
  // threads: with the caller.
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const override { return static_cast<int>(helpers_.size()) + 1; }
  void run(int64_t n, TaskRef task) override;

 private:
  void help(int thread);
  void work(int thread);

  // Written by the caller while the batch is closed and nobody is at work.
  const TaskRef* task_ = nullptr;
  int64_t tasks_ = 0;
  std::exception_ptr error_;  // by the first that failed
  std::atomic<bool> failed_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> next_ = 0;
  std::atomic<uint32_t> batch_ = 0;  // helpers wait for the next one
  // Helpers at work, and whether no more may join: who wakes up late is not waited for.
  static constexpr uint32_t kClosed = uint32_t{1} << 31U;
  std::atomic<uint32_t> at_work_ = kClosed;
  std::vector<std::jthread> helpers_;
};

}  // namespace pushpull
