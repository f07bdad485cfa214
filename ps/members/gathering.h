// Decides how long a term waits for its members: when it starts without the missing ones, and when
// the job fails because too few have joined. A state machine of the coordinator. Times are
// milliseconds of the caller's clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/net/intervals.h"
#include "ps/members/membership.h"

namespace pushpull {

struct Job;

class Gathering {
 public:
  //   again: an earlier term has trained. This one waits for replacement-timeout.
  //   join_timeout_s: for the members of a job that has not trained yet.
  Gathering(const Job& job, bool again, double join_timeout_s);

  // Sets the members of the earlier term, which join this one as soon as they hear of it.
  void expect(std::vector<MemberInfo> members) { expected_ = std::move(members); }
  // Returns the expected members that have not joined within heartbeat-timeout, once.
  std::vector<MemberInfo> take_missing(int64_t now_ms, const Membership& members);
  // Returns true if the term starts although members are missing. Only a term of a job with
  // on-worker-loss = continue that has trained does, once it has had a quorum for heartbeat-timeout
  // or the time limit has passed.
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

  const bool again_;          // an earlier term has trained
  const bool may_lack_;       // may start with fewer workers
  const int64_t silence_ms_;  // heartbeat-timeout: wait for the others once there is a quorum
  const int64_t limit_ms_;
  Repeat line_{kWaitingMs};
  std::optional<int64_t> began_ms_;   // start of the wait
  std::optional<int64_t> quorum_ms_;  // start of the quorum
  std::vector<MemberInfo> expected_;
};

}  // namespace pushpull
