// The start of a run: waits for its files, and reads the state that it begins with.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/process.h"
#include "common/base/task_thread.h"
#include "common/io/checkpoint.h"
#include "common/net/flat_state.h"
#include "ps/members/declarations.h"

namespace pushpull {

// Runs the tasks on files that precede the coordinator's loop, and hears signals meanwhile. Used by
// the coordinator's thread.

// Returns when the task has ended; throws what it throws. Prints a line if it takes longer than 10 s.
// Ends the process, with a line that names the file: with 128 + n on signal n if the task takes
// longer than 2 s, with 8 if the file system has not moved a byte for `timeout_s`. A signal that
// arrives during a shorter task stays pending in `signals`.
//   timeout_s: progress-timeout of the job; 0: no limit.
void run_before_start(TaskThread& thread, SignalFd& signals, double timeout_s,
                      const std::function<void()>& task);

// The start of a run: fresh, from initial weights, or from a checkpoint. Reads files. Used by the
// coordinator's thread.

// Whether the summary of the newest run in the output folder is there. It is missing if that run has
// ended between its last checkpoint and its summary.
enum class RunSummaryFile { kThere, kMissing };

class StartState {
 public:
  // Checks what can be checked before the model is known: resume has a checkpoint, a fresh run does
  // not mix with the checkpoints of an older one, and init-from is a safetensors file. Only reads.
  //   default_dir: folder of the checkpoints if the job names none.
  //   summary: if it is missing, a run resumed at its end only evaluates and writes it.
  // Throws Error(kUsage | kData) naming key and folder.
  StartState(const Job& job, const std::string& default_dir,
             RunSummaryFile summary = RunSummaryFile::kThere);
  // For a later term of the run with this id. Starts from the run's newest checkpoint or, if it has
  // none, from where the run began. At the run's end only the evaluation is left.
  StartState(const Job& job, const std::string& default_dir, const std::string& run);

  const std::string& checkpoint_dir() const { return dir_; }
  bool resumes() const { return checkpoint_.has_value(); }
  // Returns true if the checkpoint is from an earlier term of the same run, so that its counts
  // apply.
  bool continues_run() const { return continues_run_; }
  const CheckpointState& checkpoint() const { return checkpoint_->state; }
  // Returns true if resume = auto finds the job's end: nothing is left to do.
  bool complete() const { return complete_; }
  int64_t resumed_step() const { return checkpoint_->state.step; }

  // Returns the store for this run's checkpoints. A fresh run moves an earlier run's checkpoints
  // out of its default folder and adds a notice with their new path; a later term does not. Throws
  // Error(kIo).
  CheckpointStore open_store(const Job& job);
  // Returns the state to load into the servers, or null for the init rules. Throws Error(kData |
  // kUsage) if the checkpoint does not match the declared model, data or job.
  std::shared_ptr<const FlatState> match(const Job& job, const Declaration& declaration);
  // Returns the algorithms that the checkpoint was computed with if its numerics match, or "" for
  // the declared ones.
  std::string choices(const Declaration& declaration) const;
  // Returns what `match` has found in the file of init-from; the weights are moved away.
  const InitialWeights& initial() const { return initial_; }
  // Returns notices for users: damaged checkpoints that were skipped, different numerics.
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

 private:
  void check_job(const Job& job) const;
  void check_end(const Job& job, int64_t total_steps);
  void take_checkpoint(const Job& job, Checkpoint checkpoint);

  std::string dir_;
  bool in_default_dir_;
  std::optional<Checkpoint> checkpoint_;
  std::shared_ptr<const FlatState> weights_;  // of checkpoint_, once `match` has taken them
  InitialWeights initial_;
  const bool summary_missing_ = false;
  bool only_evaluates_ = false;
  bool complete_ = false;
  bool continues_run_ = false;
  bool later_term_ = false;
  std::vector<std::string> notices_;
};

}  // namespace pushpull
