// Writes to a terminal, pipe or file that may stall or fill up. A thread of its own does the
// writing, so the caller never blocks. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pushpull {

class BackgroundWriter {
 public:
  static constexpr size_t kMostWaitingBytes = 1 << 20;

  // fd: duplicated; the caller keeps its own. If it is -1, every write fails with EBADF.
  explicit BackgroundWriter(int fd, size_t most_waiting_bytes = kMostWaitingBytes);
  // Does not wait for pending text; call flush() first. The thread writes the rest and ends. If the
  // file stalls, the thread lasts until the process exits.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // Queues `text` behind earlier texts. Returns false and drops it if the queue is full or a write
  // has failed.
  bool write(std::string text);
  // Waits at most `milliseconds` until all text is written. Returns false if some of it is not.
  bool flush(int64_t milliseconds);
  // Returns the errno of the write that failed, or 0. After a failure nothing more is written.
  int error() const;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace pushpull
