// How long a term waits for its members: for all of them, without those that it may do without, and
// when the job ends because not enough have come. A state machine of the coordinator. Times are
// milliseconds of the clock that the caller passes. One thread.
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
  // term: from 1. join_timeout_s: of the first term; later ones wait for replacement-timeout.
  Gathering(const Job& job, int64_t term, double join_timeout_s);

  // Whether the term begins though some are missing: a later term of a job that goes on without the
  // workers that it has lost, once nobody else has come for heartbeat-timeout, or the time is over.
  // quorum: every server is there, and a worker.
  bool begins_without_others(int64_t now_ms, bool quorum);
  // Somebody is missing. waiting: who. The line for people, where one is due.
  std::optional<std::string> line(int64_t now_ms, const std::string& waiting);
  // Why the job ends: the time is over. Since the first line.
  std::optional<Error> overdue(int64_t now_ms, const std::string& waiting) const;

 private:
  bool time_is_over(int64_t now_ms) const;

  const bool again_;          // a later term
  const bool may_lack_;       // workers
  const int64_t silence_ms_;  // of those who are not to be expected any more
  const int64_t limit_ms_;
  Repeat line_{kWaitingMs};
  std::optional<int64_t> began_ms_;   // to wait
  std::optional<int64_t> quorum_ms_;  // since when the term could do without the others
};

}  // namespace pushpull
