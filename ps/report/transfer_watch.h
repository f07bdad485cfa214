// Deadline of a wait of the coordinator: for whole weights on their way to servers, from servers or
// to the disk, and for the files of the run. Names a server that does not answer or a file system
// that hangs, and ends the job at the deadline instead of waiting forever. A state machine. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace pushpull {

class TransferWatch {
 public:
  //   timeout_s: progress-timeout of the job; 0: no limit. tag: of the error.
  explicit TransferWatch(double timeout_s, std::string tag = "[checkpoint]");

  // Notes that the wait goes on.
  //   what: names the wait, as "the disk to write the weights of step 100". A new text is a new
  //   wait.
  //   moved: any number that changes with progress.
  //   bytes: for a wait without visible progress; allows another second for each 10 MB.
  void running(int64_t now_ms, const std::string& what, int64_t moved, int64_t bytes);
  void idle() { what_.clear(); }

  // Returns a line for users after 10 s (plus the allowance of `running`) without progress, and
  // again every 30 s.
  std::optional<std::string> take_notice(int64_t now_ms);
  // Returns true after `timeout_s` plus that allowance without progress.
  bool overdue(int64_t now_ms) const;
  // Returns "server 0 has waited 12.0 s for ...".
  std::string text(int64_t now_ms) const;
  // Returns "[checkpoint] server 0 has waited 600.0 s for ... (progress-timeout = 600.0)".
  std::string overdue_text(int64_t now_ms) const;

 private:
  int64_t waited_ms(int64_t now_ms) const { return now_ms - since_ms_; }

  const int64_t timeout_ms_;
  const std::string tag_;
  std::string what_;  // empty without a wait
  int64_t moved_ = 0;
  int64_t since_ms_ = 0;
  int64_t allowance_ms_ = 0;
  int64_t notice_ms_ = -1;  // -1 before the first notice
};

enum class FileStep {
  kLoad,     // reads the weights that a term starts from
  kOpen,     // writes the files that a term begins with
  kTerm,     // writes term.json for the next term
  kSummary,  // writes the record and summary.json
  kEnd,      // writes the end of the run to term.json
  kClose,    // removes term.json and the locks
};

// The work on the run's files that is in progress, and its deadline. Part of the job driver's state
// machine. Not thread-safe.
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
