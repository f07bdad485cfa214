// The start of a run: fresh, from initial weights, or from a checkpoint. Reads files; the
// coordinator's thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/io/checkpoint.h"
#include "common/net/shard_client.h"
#include "ps/coordinator/coordinator.h"

namespace pushpull {

class StartState {
 public:
  // Checks what can be checked before the model is known: that there is something to resume from,
  // that a fresh run does not mix with an older one's checkpoints, that init-from is a safetensors
  // file. Reads only. default_dir: where checkpoints go when the job names no folder.
  // Throws Error(kUsage | kData) naming key and folder.
  StartState(const Job& job, const std::string& default_dir);
  // A later term of the run with this id: from its newest checkpoint before its end, or, where it has
  // written none, from where it began.
  StartState(const Job& job, const std::string& default_dir, const std::string& run);

  const std::string& checkpoint_dir() const { return dir_; }
  bool resumes() const { return checkpoint_.has_value(); }
  // The checkpoint is of an earlier term of the same run: its counts hold.
  bool goes_on() const { return goes_on_; }
  const CheckpointState& checkpoint() const { return checkpoint_->state; }
  // resume=auto, and the checkpoint is the job's end: nothing is left to do.
  bool complete() const { return complete_; }
  int64_t resumed_step() const { return checkpoint_->state.step; }

  // Where this run's checkpoints go. A fresh run moves an earlier one's out of its default folder, and
  // a notice says where to; in a later term that has been done. Throws Error(kIo).
  CheckpointStore open_store(int64_t keep);
  // Everything to hand to the servers; null for init rules. Throws Error(kData | kUsage) where the
  // checkpoint does not fit the declared model, data or job.
  std::shared_ptr<const FlatState> match(const Job& job, const Declaration& declaration);
  // The algorithms to go on with: those that the checkpoint was computed with, where they fit; "":
  // those that were declared.
  std::string choices(const Declaration& declaration) const;
  // Lines for people: damaged checkpoints that were passed over, other instruction sets.
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

 private:
  void check_job(const Job& job) const;
  void check_end(const Job& job, int64_t total_steps);
  void take_checkpoint(const Job& job, Checkpoint checkpoint);

  std::string dir_;
  bool in_default_dir_;
  std::optional<Checkpoint> checkpoint_;
  bool complete_ = false;
  bool goes_on_ = false;
  bool later_term_ = false;
  std::vector<std::string> notices_;
};

}  // namespace pushpull
