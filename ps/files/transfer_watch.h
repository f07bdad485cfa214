// Deadline of a wait of the coordinator: for whole weights on their way to servers, from servers or
// to the disk, and for the files of the run. Names a server that does not answer or a file system
// that hangs, and ends the job at the deadline instead of waiting forever. A state machine. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

}  // namespace pushpull
