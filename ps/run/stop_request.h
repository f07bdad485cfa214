// A request to stop the job, by a signal or by the end of its allocation: what it means in each
// phase, and the job's end if no consistent cut comes in time. Part of the job driver's state
// machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/base/end_request.h"
#include "common/base/error.h"
#include "common/net/message.h"
#include "ps/members/membership.h"
#include "ps/report/transfer_watch.h"
#include "ps/run/stop_options.h"

namespace pushpull {

// How far a run has come, and how much of that is safe.
struct RunSaved {
  std::optional<int64_t> step;        // of the training; unknown between two terms
  std::optional<int64_t> whole_step;  // of the newest whole checkpoint on disk, if there is one

  // Returns "the newest checkpoint is that of step 3000: 1004 steps since then are lost".
  std::string loss() const;
};

class StopRequest {
 public:
  // The value of `stopped_by` in the summary of a run that stops by itself.
  static constexpr const char* kTimeLimit = "time-limit";
  static constexpr const char* kLastWorker = "the end of the last worker's program";

  // Borrows self.
  //   self: server 0, which hears the signal.
  StopRequest(const MemberInfo& self, const StopOptions& options)
      : self_(self), options_(options), grace_ms_(options.grace_ms) {}

  // Takes a signal that asks to end. Returns true if the process must end at once.
  bool take(Now now, int signal) { return end_.take(now.ms, signal); }
  // Asks to end because the allocation does. A later signal changes nothing.
  void take_limit(Now now) { take_itself(now, kTimeLimit, options_.grace_of_limit_ms()); }
  // Asks to end because no worker is left.
  //   may_cut: the servers stand at a cut. Otherwise the job ends at once with its newest checkpoint.
  void take_last_worker(Now now, bool may_cut) {
    take_itself(now, kLastWorker, may_cut ? grace_ms_ : 0);
  }
  bool asked() const { return end_.asked(); }
  // Returns whether members have had time to hear of the end.
  bool overdue(Now now) const { return end_.overdue(now.ms, exit_ms(grace_ms_)); }
  // Returns whether the grace for a cut and its files is over: members must hear of the end now.
  bool late(Now now) const { return end_.overdue(now.ms, cut_ms(grace_ms_)); }
  // Returns "SIGTERM (server 0 (vm, pid 23957))", "time-limit" or kLastWorker.
  std::string cause() const;

  // Returns the error that ends the job if it cannot stop with a checkpoint: it has not begun, or the
  // cut or a file was not on disk within the grace. Its code is kStopped if an earlier checkpoint is
  // whole: a resume goes on from there.
  //   trained: some term has begun to train.
  std::optional<Error> failure(Now now, wire::Phase phase, bool trained, const FileWatch& files,
                               const RunSaved& saved);
  // Returns true for the first call, to say once what happens.
  bool first_notice() { return !std::exchange(noticed_, true); }
  // Returns the exit code if `failure` has ended the job: 75, 128 + n for signal n, or 1.
  const std::optional<int>& exit_code() const { return exit_code_; }

 private:
  void take_itself(Now now, const char* why, int64_t grace_ms);

  const MemberInfo& self_;
  const StopOptions options_;
  EndRequest end_;
  const char* by_itself_ = nullptr;  // why, if no signal has asked
  int64_t grace_ms_;
  bool noticed_ = false;
  std::optional<int> exit_code_;
};

}  // namespace pushpull
