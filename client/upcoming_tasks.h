// Tasks that the caller will probably get, so that it can read their samples ahead. A queue with a
// limit; each task is told once. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace pushpull {

// A copy of a task for the caller.
struct HandedTask {
  bool trains = false;
  int64_t step = -1;
  int64_t micro_batch = -1;  // or chunk of an evaluation
  int64_t epoch = 0;
  std::vector<int64_t> indices;  // of samples in the split
  bool same_weights = false;     // those of the task before
};

class UpcomingTasks {
 public:
  static constexpr size_t kMaxTasks = 1024;  // that wait to be told; as many are known as told

  // Adds a task, unless it waits to be told, was told and has not begun, or the queue is full.
  void add(HandedTask task);
  // Records that a task begins: no announcement of it or of those before it is needed any more, and
  // it may be announced again.
  void begin(const HandedTask& task);
  // Returns the next task, or nothing.
  std::optional<HandedTask> take();

 private:
  using Key = std::pair<int64_t, int64_t>;  // step, micro-batch
  static Key key_of(const HandedTask& task) { return {task.step, task.micro_batch}; }
  std::deque<HandedTask>::iterator waiting(const Key& key);

  std::deque<HandedTask> waiting_;
  std::set<Key> told_;
};

}  // namespace pushpull
