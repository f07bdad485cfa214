// Decides how long a term waits for its members: when it starts without the missing ones, and when
// the job fails because too few have joined. A state machine of the coordinator. Times are
// milliseconds of the caller's clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/base/repeat.h"
#include "common/job/job.h"
#include "common/net/intervals.h"

namespace pushpull {

class Gathering {
 public:
  //   term: counts from 1. join_timeout_s: for the first term; later terms wait for
  //   replacement-timeout.
  Gathering(const Job& job, int64_t term, double join_timeout_s);

  // Returns true if the term starts although members are missing. Only a later term of a job with
  // on-worker-loss = continue does, once it has had a quorum for heartbeat-timeout, or the time
  // limit has passed.
  //   quorum: all servers and at least one worker have joined.
  bool begins_without_others(int64_t now_ms, bool quorum);
  // Returns the progress line if one is due.
  //   waiting: names the missing members; empty if there are none.
  std::optional<std::string> line(int64_t now_ms, const std::string& waiting);
  // Returns the error that ends the job once the time limit, counted from the first `line`, has
  // passed.
  std::optional<Error> overdue(int64_t now_ms, const std::string& waiting) const;

 private:
  bool time_is_over(int64_t now_ms) const;

  const bool again_;          // a later term
  const bool may_lack_;       // may start with fewer workers
  const int64_t silence_ms_;  // wait for the others once there is a quorum
  const int64_t limit_ms_;
  Repeat line_{kWaitingMs};
  std::optional<int64_t> began_ms_;   // start of the wait
  std::optional<int64_t> quorum_ms_;  // start of the quorum
};

}  // namespace pushpull
