// The end of a run: its exit code, and how term.json gets it before the members hear of it, so that
// the next process can tell them if this one is killed. Part of the job driver's state machine. Does
// no I/O and reads no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/job_effects.h"
#include "ps/coordinator/stop_request.h"
#include "ps/coordinator/transfers.h"
#include "ps/files/transfer_watch.h"
#include "ps/members/ended_run.h"

namespace pushpull {

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

  // Returns true once the members may hear that the job is over.
  bool announced() const { return announced_; }
  int exit_code(const Coordinator& coordinator) const;

 private:
  void announce(Now now, Coordinator& coordinator);
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
  bool announced_ = false;
};

}  // namespace pushpull
