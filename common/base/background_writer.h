// Writes texts to a descriptor or a file on a `TaskThread`. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/task_thread.h"
#include "common/base/unique_fd.h"

namespace pushpull {

class BackgroundWriter {
 public:
  static constexpr size_t kMaxWaitingBytes = 1 << 20;

  // Appends each text to `fd`, in the order of the calls. Duplicates `fd`; with -1 every write
  // fails. After the first failed write, all other texts are dropped.
  explicit BackgroundWriter(int fd, size_t max_waiting_bytes = kMaxWaitingBytes);
  // Appends each text to the file that `open` returns. `open` runs on the writing thread, before the first text. If it
  // returns no descriptor, errno is the error of every write.
  explicit BackgroundWriter(std::function<UniqueFd()> open);
  // Replaces the file `path` by the newest text. Each text goes to PATH.tmp, which is then renamed: a
  // reader never sees half of it. After a failure the old file stays and the next text is tried. There is
  // no fsync: a power cut may cost the newest text, a killed process does not.
  explicit BackgroundWriter(const std::string& path);
  // Does not flush. The thread ends after the last text, or with the process if a write blocks.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // Returns at once. With a descriptor: returns false and drops the text if a write has failed or the
  // waiting texts would exceed `max_waiting_bytes`. With a path: returns true, and the text
  // replaces one that still waits to be written.
  bool write(std::string text);
  // Waits until all texts are written, but at most this long. Returns false if texts are left or
  // the newest write failed.
  bool flush(int64_t milliseconds);
  // Returns the errno of the newest write, 0 if it succeeded.
  int error() const;

 private:
  struct State;

  std::shared_ptr<State> state_;  // shared with the tasks
  TaskThread thread_;
};

}  // namespace pushpull
