// Signals to the first server and the end of its allocation, applied to the running term: the run
// stops at its nearest cut, or a checkpoint is written and training goes on. Part of the job driver's
// state machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/job_effects.h"
#include "ps/coordinator/stop_request.h"
#include "ps/coordinator/transfers.h"
#include "ps/files/transfer_watch.h"

namespace pushpull {

class ServedData;

class PlannedStops {
 public:
  // Borrows all arguments but the options.
  //   self: server 0, which hears the signals.
  //   data: of the server in this process.
  PlannedStops(const StopOptions& options, const MemberInfo& self, const FileWatch& files,
               ServedData& data, Transfers& transfers, JobEffects& effects);

  // Handles a signal: a request to end, a request for a checkpoint, or one that is ignored with a
  // line. Returns true if the process must end at once.
  bool take(Now now, int signal, const Coordinator& coordinator);
  // Applies what was asked to the running term. Call at each tick: the requests concern the run, not
  // a term. Returns true if the run has just been given the step at which it stops: the server in
  // this process must hear of it before it handles other messages.
  //   trained: some term has begun to train.
  bool advance(Now now, Coordinator& coordinator, bool trained);

  const StopRequest& request() const { return request_; }

 private:
  void write_checkpoint(Now now, Coordinator& coordinator, bool trained);
  void note_written(const Coordinator& coordinator);
  void settle(const std::string& outcome);
  bool stop(Now now, Coordinator& coordinator, bool trained);
  RunSaved saved(const Coordinator& coordinator) const;

  const StopOptions options_;
  const FileWatch& files_;
  ServedData& data_;
  Transfers& transfers_;
  JobEffects& effects_;
  StopRequest request_;
  bool wanted_ = false;    // a checkpoint by a signal, not chosen yet
  bool put_off_ = false;   // and the reason was shown
  int64_t awaited_ = -1;   // step of the one that was chosen and is not on disk yet; -1 for none
  std::set<int> ignored_;  // signals that a line has named
};

}  // namespace pushpull
