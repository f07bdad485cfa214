// Writes to a terminal, pipe or file that may stall or fill up, on a thread of its own: whoever hands
// in text does not wait. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pushpull {

class BackgroundWriter {
 public:
  static constexpr size_t kMostWaitingBytes = 1 << 20;

  // fd: duplicated; the caller keeps its own. -1: nothing is ever written.
  explicit BackgroundWriter(int fd, size_t most_waiting_bytes = kMostWaitingBytes);
  // Does not wait: `flush` does. A thread that a stalled file holds goes on alone, and ends with the
  // process.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // In the order of the calls. False: the text is left out, as too much waits already or a write has
  // failed.
  bool write(std::string text);
  // Waits until all is written, at most this long. False: some of it is not.
  bool flush(int64_t milliseconds);
  // errno of the write that failed, after which nothing is written; 0: none has.
  int error() const;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace pushpull
