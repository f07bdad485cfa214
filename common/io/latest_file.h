// Keeps a file at the newest text that was put. A thread of its own writes it, so the caller never
// waits for a file system that stalls, and a reader never sees half a text. Any thread.
//
// Each text goes to PATH.tmp, which is then renamed to PATH. It is not forced to disk: a power cut
// may lose the newest text, a killed process does not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace pushpull {

class LatestFile {
 public:
  // Starts the thread; the file is first written by `put`.
  explicit LatestFile(std::string path);
  // Does not wait for a pending text; call flush() first. The thread writes it and ends. If the
  // file system stalls, the thread lasts until the process exits.
  ~LatestFile();
  LatestFile(const LatestFile&) = delete;
  LatestFile& operator=(const LatestFile&) = delete;

  // Queues `text`, in place of one that still waits.
  void put(std::string text);
  // Waits at most `milliseconds` until the newest text is written or has failed. Returns false if
  // it is not in the file.
  bool flush(int64_t milliseconds);
  // Returns the errno of the newest attempt, or 0 if it succeeded. The next text is tried in any
  // case.
  int error() const;
  const std::string& path() const;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace pushpull
