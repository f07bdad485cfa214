// The deadline of whatever the coordinator does with whole weights: handing them to the servers,
// gathering them, writing them. A server that does not answer or a disk that hangs is named, and in
// the end the job fails instead of waiting for ever. State machine; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pushpull {

class TransferWatch {
 public:
  // timeout_s: progress-timeout of the job; 0: none.
  explicit TransferWatch(double timeout_s);

  // Something runs. what: whom it waits for, "the disk to take the checkpoint of step 100". moved:
  // any number that changes when it moves on; another `what` is another wait.
  // bytes: of a wait that cannot say how far it is; it has a second more for each 10 MB.
  void running(int64_t now_ms, const std::string& what, int64_t moved, int64_t bytes);
  void idle() { what_.clear(); }

  // A line for people: it stands for 10 s, and again every 30 s.
  std::optional<std::string> take_notice(int64_t now_ms);
  // It has stood for longer than the timeout.
  bool overdue(int64_t now_ms) const;
  // "[checkpoint] server 0 has waited 600.0 s for ... (progress-timeout = 600.0)"
  std::string overdue_text(int64_t now_ms) const;

 private:
  int64_t stands_ms(int64_t now_ms) const { return now_ms - since_ms_; }
  std::string text(int64_t now_ms) const;

  const int64_t timeout_ms_;
  std::string what_;  // empty: nothing runs
  int64_t moved_ = 0;
  int64_t since_ms_ = 0;
  int64_t allowance_ms_ = 0;
  int64_t said_ms_ = -1;  // -1: not yet
};

}  // namespace pushpull
