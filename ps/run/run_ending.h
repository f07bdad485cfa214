// How a run ends: at a planned stop or by itself, and with which exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "ps/members/ended_run.h"
#include "ps/report/transfer_watch.h"
#include "ps/run/coordinator.h"
#include "ps/run/job_effects.h"
#include "ps/run/stop_request.h"
#include "ps/run/transfers.h"

namespace pushpull {

class ServedData;

// Signals to the first server and the end of its allocation, applied to the running term: the run
// stops at its nearest cut, or a checkpoint is written and training goes on. Part of the job driver's
// state machine. Not thread-safe.
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

// The end of a run: its exit code, and how term.json gets it before the members hear of it, so that
// the next process can tell them if this one is killed. Part of the job driver's state machine. Does
// no I/O and reads no clock. Not thread-safe.
class RunEnding {
 public:
  // Borrows all arguments. The run in `options` changes with each term.
  RunEnding(const CoordinatorOptions& options, const StopRequest& stop, const Transfers& transfers,
            FileWatch& files, JobEffects& effects);

  // Begins to save the end. Call once the summary is written.
  void save(const Coordinator& coordinator);
  // The end is saved: finishes or stops the job, or lets the members hear of its failure.
  void saved(Now now, Coordinator& coordinator);
  // Begins to save a failure once no other work on files is in progress. Lets the members hear of it
  // without that if the file system takes too long.
  void on_tick(Now now, Coordinator& coordinator);

  int exit_code(const Coordinator& coordinator) const;

 private:
  RunEnd end_of(const Coordinator& coordinator) const;
  std::string stopped_text(const Coordinator& coordinator) const;

  const CoordinatorOptions& options_;
  const StopRequest& stop_;
  const Transfers& transfers_;
  FileWatch& files_;
  JobEffects& effects_;
  const int64_t max_ms_;              // that a failure is kept from the members
  std::optional<int64_t> failed_ms_;  // time of the failure
  bool failure_saved_ = false;        // or about to be
};

}  // namespace pushpull
