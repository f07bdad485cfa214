// A run that has ended while its coordinator could still be killed before its members had heard of
// the end, and the answers of the next coordinator to these members. A state machine. Times are
// milliseconds of the caller's clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/net/message.h"

namespace pushpull {

// How a run ended. Durable before the first member hears of it.
struct RunEnd {
  uint64_t term_id = 0;   // id of the last term
  bool finished = false;  // all is computed; or else the job has failed or was stopped
  int code = 0;           // exit code of the members, if not finished
  std::string text = {};  // why the job failed, or why `exit_code` is not 0
  int exit_code = 0;      // of the coordinator
  int64_t members = 0;    // other members that had to hear of the end
};

// Returns how a process that has no place in the job hears of its end, and ends: with the code of the
// members if the job has failed or was stopped, otherwise with kUnreachable.
Error end_without_place(bool finished, int code, const std::string& text);

// Tells members that still belong to the run how it ended, so that they end, too.
class EndedRun {
 public:
  explicit EndedRun(RunEnd end) : end_(std::move(end)) {}

  // Returns the answer to a control message, if there is one.
  std::optional<Message> on_message(const Message& message);
  // Returns true once all members have left, or the wait for them is over. The wait begins with the
  // first call.
  bool over(int64_t now_ms);

 private:
  const RunEnd end_;
  int64_t left_ = 0;
  std::optional<int64_t> began_ms_;
};

}  // namespace pushpull
