// The work on the run's files that is in progress, and its deadline. Part of the job driver's state
// machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "ps/files/transfer_watch.h"

namespace pushpull {

enum class FileStep {
  kLoad,     // reads the weights that a term starts from
  kOpen,     // writes the files that a term begins with
  kTerm,     // writes term.json for the next term
  kSummary,  // writes the record and summary.json
  kEnd,      // writes the end of the run to term.json
  kClose,    // removes term.json and the locks
};

class FileWatch {
 public:
  //   timeout_s: progress-timeout of the job; 0: no limit.
  explicit FileWatch(double timeout_s) : watch_(timeout_s, "[out]") {}

  // Notes that the work has begun. One step at a time.
  void begin(FileStep step) { step_ = step; }
  // Notes that the work has ended. Returns the step.
  FileStep end();
  bool busy() const { return step_.has_value(); }

  // Call in each turn while busy.
  //   what: names the wait, as "the file system to write out/term.json".
  //   moved: any number that changes with progress.
  void running(int64_t now_ms, const std::string& what, int64_t moved) {
    watch_.running(now_ms, what, moved, 0);
  }
  // These four are those of TransferWatch.
  std::optional<std::string> take_notice(int64_t now_ms) { return watch_.take_notice(now_ms); }
  bool overdue(int64_t now_ms) const { return watch_.overdue(now_ms); }
  std::string text(int64_t now_ms) const { return watch_.text(now_ms); }
  std::string overdue_text(int64_t now_ms) const { return watch_.overdue_text(now_ms); }

 private:
  std::optional<FileStep> step_;
  TransferWatch watch_;
};

}  // namespace pushpull
