// Work in parallel: the interface Parallel, and threads that share the tasks of one caller, which works
// too. After a batch that came soon after the one before they spin briefly, since the next may, too;
// then they sleep. One caller at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace pushpull {

// A reference to a callable that must outlive the call. A std::function would allocate.
class TaskRef {
 public:
  template <class Task>
  TaskRef(const Task& task)  // NOLINT(google-explicit-constructor): calls hand in a lambda
      : task_(std::addressof(task)), call_([](const void* t, int64_t index, int thread) {
          (*static_cast<const Task*>(t))(index, thread);
        }) {}
  void operator()(int64_t index, int thread) const { call_(task_, index, thread); }

 private:
  const void* task_;
  void (*call_)(const void*, int64_t, int);
};

// Lets state machines run many similar tasks at once without owning threads: the caller passes in a
// `Parallel`. Results never depend on which thread runs a task.
class Parallel {
 public:
  virtual ~Parallel() = default;
  virtual int threads() const = 0;
  // Calls task(index, thread) once for each index in [0, n), in any order. `thread` is in [0,
  // threads()); calls with the same `thread` never overlap. Returns when all calls are done;
  // rethrows the exception of one of them.
  virtual void run(int64_t n, TaskRef task) = 0;
};

// Runs every task on the caller's thread, in order.
class Serial : public Parallel {
 public:
  int threads() const override { return 1; }
  void run(int64_t n, TaskRef task) override {
    for (int64_t i = 0; i < n; ++i) task(i, 0);
  }
};

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
  // Takes tasks until there are none, or `most` of them.
  void work(int thread, int64_t most);

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
