// How state machines do many like things at once without knowing threads: whoever owns them hands a
// `Parallel` in. What is computed never depends on who computes it.
#pragma once

#include <cstdint>
#include <memory>

namespace pushpull {

// Calls something that outlives the call; a std::function would allocate.
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
  // task(index, thread) for each index in [0, n), once, in any order; thread is in [0, threads()),
  // and no two calls with the same one at once. Returns when all are done; throws what one of them
  // has thrown.
  virtual void run(int64_t n, TaskRef task) = 0;
};

// All on the caller's thread, in order.
class Serial : public Parallel {
 public:
  int threads() const override { return 1; }
  void run(int64_t n, TaskRef task) override {
    for (int64_t i = 0; i < n; ++i) task(i, 0);
  }
};

}  // namespace pushpull
