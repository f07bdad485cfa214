// A request to stop the job, by a signal: what it means in each phase, and the job's end if no
// consistent cut comes in time. Part of the job driver's state machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/end_request.h"
#include "common/net/message.h"
#include "ps/coordinator/job_effects.h"
#include "ps/files/file_watch.h"
#include "ps/members/membership.h"

namespace pushpull {

class StopRequest {
 public:
  //   self: server 0, which hears the signal.
  explicit StopRequest(const MemberInfo& self) : self_(self) {}

  // Returns true if the process must end at once.
  bool take(Now now, int signal) { return end_.take(now.ms, signal); }
  bool asked() const { return end_.asked(); }
  // Returns whether members have had time to hear of the end.
  bool overdue(Now now) const { return end_.overdue(now.ms); }
  // Returns whether the grace for a cut and its files is over: members must hear of the end now.
  bool late(Now now) const { return end_.overdue(now.ms, EndRequest::kStopMs); }
  // Returns "SIGTERM (server 0 (vm, pid 23957))".
  std::string cause() const;

  // Returns the text with which the job fails, if it cannot stop with a checkpoint: it has not
  // begun, or the cut or a file was not on disk within the grace.
  //   trained: some term has begun to train.
  std::optional<std::string> failure(Now now, wire::Phase phase, bool trained,
                                     const FileWatch& files);
  // Returns true for the first call, to say once what happens.
  bool first_notice() { return !std::exchange(noticed_, true); }
  // Returns 128 + n if the job has failed by signal n, without a checkpoint.
  std::optional<int> exit_code() const;

 private:
  const MemberInfo& self_;
  EndRequest end_;
  bool noticed_ = false;
  bool failed_ = false;
};

}  // namespace pushpull
