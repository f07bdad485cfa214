// Has the end of the run saved before the members hear of it, so that a coordinator that is killed
// meanwhile can tell them. Part of the job driver's state machine. Does no I/O and reads no clock.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "common/job/job.h"
#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/job_effects.h"
#include "ps/files/file_watch.h"
#include "ps/members/ended_run.h"

namespace pushpull {

class RunEnding {
 public:
  // Borrows files and effects.
  RunEnding(const Job& job, FileWatch& files, JobEffects& effects);

  // Begins to save the end of a run that has computed all, or has stopped. Call when no work on
  // files is in progress.
  void save(const RunEnd& end);
  // Call in each tick of a failed job. Begins to save the failure once no other work on files is in
  // progress. Lets the members hear of it without that if the file system takes too long.
  //   late: they must hear of it now.
  void on_failure(Now now, Coordinator& coordinator, const RunEnd& end, bool late);
  // The end is saved: lets the members hear of it, unless the job has failed since `save`.
  void saved(Now now, Coordinator& coordinator);

 private:
  const int64_t most_ms_;  // that a failure is kept from the members
  FileWatch& files_;
  JobEffects& effects_;
  std::optional<int64_t> failed_ms_;
  bool failure_saved_ = false;  // or about to be
};

}  // namespace pushpull
