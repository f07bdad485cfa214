// Runs tasks that read and write files on a thread, so that a file system that does not answer does
// not block the caller. One task at a time. One thread calls all functions except `waits`.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace pushpull {

class FileThread {
 public:
  FileThread();
  // Does not wait for a task. While one runs, end the process with _exit: the task may use objects
  // that are about to be destroyed.
  ~FileThread();
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  // Call when the thread is not busy.
  void start(std::function<void()> task);
  // Returns the error of the task that has ended, null if it succeeded; once.
  std::optional<std::exception_ptr> take();
  // Returns true from `start` until `take` has returned the result.
  bool busy() const { return busy_; }
  // Becomes readable when a task has ended.
  int done_fd() const;

  // Called by a task before it waits for the file system. Thread-safe.
  //   verb, path: "write", "out/term.json".
  void waits(const std::string& verb, const std::string& path);
  // Returns "the file system to write out/term.json": the newest wait of the task.
  std::string waiting() const;

 private:
  struct State;

  bool busy_ = false;
  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace pushpull
