// A thread that runs tasks in order, so that a caller never waits for a file system, terminal or
// pipe that stalls.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace pushpull {

class TaskThread {
 public:
  TaskThread();
  // Does not wait. The thread is detached: it ends after the last task, or with the process if a
  // task hangs. While a task may use objects that are about to be destroyed, `wait`, or end the
  // process with _exit.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Returns at once. Thread-safe.
  void start(std::function<void()> task);
  // Waits until all tasks have ended, but at most this long. Returns false if tasks are left.
  // Thread-safe.
  bool wait(int64_t milliseconds) const;

  // ---- for an event loop, which starts a task after taking the result of the one before ----
  // Returns the error of the task that has ended, null if it succeeded; once.
  std::optional<std::exception_ptr> take();
  // Returns true from `start` until `take` has returned the result.
  bool busy() const;
  // Becomes readable when a task has ended.
  int done_fd() const;

  // Called by a task before it waits for the file system. Thread-safe.
  //   verb, path: "write", "out/term.json".
  void waits(const std::string& verb, const std::string& path);
  // Returns "the file system to write out/term.json": the newest wait of a task. Thread-safe.
  std::string waiting() const;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace pushpull
