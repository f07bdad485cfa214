// Lets state machines run many similar tasks at once without owning threads: the caller passes in a
// `Parallel`. Results never depend on which thread runs a task.
#pragma once

#include <cstdint>
#include <memory>

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

}  // namespace pushpull
