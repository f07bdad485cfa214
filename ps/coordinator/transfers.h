// Weights between the coordinator and all servers, through a `ShardClient`: loaded at the start of a
// term, fetched at each checkpoint and handed to the disk; fetched as a copy, and loaded by a server in
// the place of a lost one; and how long a server or the disk may take for that. Part of the job driver's state machine; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/net/shard_client.h"
#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/job_effects.h"
#include "ps/coordinator/progress.h"
#include "ps/coordinator/transfer_watch.h"
#include "ps/files/checkpoint_pace.h"

namespace pushpull {

class Transfers {
 public:
  // All borrowed. options: their run and term change with the term.
  Transfers(const CoordinatorOptions& options, Progress& progress, JobEffects& effects);

  // The term has been set up. Returns the number of slices.
  int64_t begin_term(Now now, const Coordinator& coordinator, const StartPoint& point);
  // Nothing is fetched any more; what is being written goes on.
  void end_term();

  // From one of the connections for weights. False: it was not taken.
  bool on_message(Now now, const Message& message);
  // In each turn: sends what is to be sent, and takes in what has been fetched.
  void exchange(Now now, Coordinator& coordinator);
  // Begins with the next snapshot where one is due; ends the job where this takes too long.
  void on_tick(Now now, Coordinator& coordinator);
  // A snapshot is hashed or on disk. False: it could not be written, and the job goes on without it.
  // Throws what kept it from being written where the job does not.
  bool on_written(Now now, Coordinator& coordinator, const Written& written);

  // There are answers to wait for.
  bool busy() const { return (client_ && client_->busy()) || restoring_; }
  // A snapshot is fetched, hashed or written; has been fetched.
  bool writing() const { return writing_; }
  bool on_disk() const { return on_disk_; }
  // Slices that have been loaded and gathered in this term.
  int64_t transferred() const { return client_ ? client_->transferred() : 0; }
  // A server or the disk has made no progress for progress-timeout.
  bool overdue(Now now) const { return watch_.overdue(now.awake_ms); }
  // Why the end of the run is not on disk, in a job that goes on without; "": it is, or is not yet.
  const std::string& end_failure() const { return end_failure_; }
  // Server that has not answered, for messages. -1: none.
  int slow_shard() const { return client_ ? client_->waiting_for() : -1; }

 private:
  void choose_checkpoint(Now now, Coordinator& coordinator);
  void request_snapshot(Now now, Coordinator& coordinator);
  std::vector<int> slices_of_others() const;
  void keep_copy(Coordinator& coordinator, const GatheredState& snapshot);
  void restore(Now now, Coordinator& coordinator);
  void note_transfer(Now now, const Coordinator& coordinator);
  void watch(Now now, Coordinator& coordinator);
  void take_snapshot(Now now, Coordinator& coordinator, GatheredState snapshot);
  void measure(Now now, const Coordinator& coordinator, int64_t step);
  bool may_fail(const Written& written) const;
  void tell_failure(const Coordinator& coordinator, const Written& written);

  const CoordinatorOptions& options_;
  Progress& progress_;
  JobEffects& effects_;
  std::unique_ptr<ShardClient> client_;  // null between two terms
  std::optional<SliceMap> map_;          // of the term
  // recovery = peers: the newest copy of the other servers' slices; null: none yet
  std::shared_ptr<const GatheredState> copy_;
  std::unique_ptr<ShardClient> restoring_;  // loads it into the server with this incarnation
  uint64_t restored_server_ = 0;
  bool writing_ = false;
  bool on_disk_ = false;
  int64_t snapshot_step_ = 0;
  int64_t snapshot_term_ = 0;
  int64_t snapshot_bytes_ = 0;
  std::optional<int64_t> whole_step_;  // of the newest checkpoint on disk, as far as is known
  std::string end_failure_;
  TransferWatch watch_;
  CheckpointPace pace_;
};

}  // namespace pushpull
