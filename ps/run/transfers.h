// Moves weights between the coordinator and all servers, through a `ShardClient`: loads them at the
// start of a term, fetches them at each checkpoint for the disk, fetches copies, and loads a copy
// into a server that replaces a lost one. Limits how long a server or the disk may take. Part of
// the job driver's state machine. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/layout/slice_map.h"
#include "common/net/shard_client.h"
#include "ps/members/admission.h"
#include "ps/report/checkpoint_interval.h"
#include "ps/report/transfer_watch.h"
#include "ps/run/job_effects.h"
#include "ps/run/run_summary.h"

namespace pushpull {

class TrainingRun;

class Transfers {
 public:
  // Borrows all arguments. The run in `options` changes with each term.
  Transfers(const CoordinatorOptions& options, RunSummary& summary, JobEffects& effects);

  // Starts a term once it is set up. Borrows run, members and declaration until `end_term`. Returns
  // the number of slices.
  int64_t begin_term(Now now, TrainingRun& run, const Membership& members,
                     const Declaration& declaration, const StartPoint& point);
  // Stops all fetches; a write in progress continues.
  void end_term();

  // Handles a message on one of the data connections to servers. Returns false if it belongs to no
  // running transfer.
  bool on_message(Now now, const Message& message);
  // Call in each turn: sends requests and takes finished fetches.
  void exchange(Now now);
  // Starts the next snapshot if one is due. Returns the error that ends the job if a transfer takes
  // too long.
  //   server_lost: a lost server ends the term.
  std::optional<Error> on_tick(Now now, wire::Phase phase, bool server_lost);
  // Notes that a snapshot was hashed or written. Returns false if it could not be written and the
  // job continues without it. Throws the write's error if the job may not continue.
  bool on_written(Now now, const Written& written);

  // Adds a checkpoint a few steps ahead. Returns its step, or nothing if there is none before the end.
  std::optional<int64_t> add_checkpoint(Now now);

  // Returns true while answers from servers are due.
  bool busy() const { return term_ && (term_->client.busy() || term_->restoring); }
  // Returns true while the disk writes or hashes a snapshot, also one of an earlier term.
  bool uses_disk() const { return disk_step_.has_value(); }
  // Returns the step of the newest whole checkpoint on disk in the running or the newest term.
  std::optional<int64_t> saved_step() const;
  // Returns true if a server or the disk has made no progress for progress-timeout.
  bool overdue(Now now) const { return watch_.overdue(now.awake_ms); }
  // Returns why the last checkpoint is not on disk, in a job that continues without it; ""
  // otherwise.
  const std::string& end_failure() const { return end_failure_; }
  // Returns the rank of a server that has not answered yet, or -1. For messages.
  int slow_shard() const { return term_ ? term_->client.waiting_for() : -1; }

 private:
  struct Term {
    TrainingRun& run;
    const Membership& members;
    const Declaration& declaration;
    SliceMap map;
    ShardClient client;
    // recovery = peers: the newest copy of the other servers' slices; null if there is none.
    std::shared_ptr<const GatheredState> copy = nullptr;
    std::unique_ptr<ShardClient> restoring = nullptr;  // loads it into restored_server
    uint64_t restored_server = 0;
  };

  ShardClient client(const SliceMap& map) const;
  size_t state_vectors() const;
  void request_snapshot(Now now);
  std::vector<int> slices_of_others() const;
  void keep_copy(const GatheredState& snapshot);
  void restore(Now now);
  void end_restore();
  void note_transfer(Now now, bool server_lost);
  std::optional<Error> watch(Now now, wire::Phase phase);
  void take_snapshot(GatheredState snapshot);
  void use_disk();
  void write(GatheredState snapshot, CheckpointKind kind);
  void measure(Now now, int64_t step);
  bool may_fail(const Written& written) const;
  bool is_of_stop(const Written& written) const;
  [[noreturn]] void rethrow(const Written& written) const;
  void report_failure(const Written& written);

  const CoordinatorOptions& options_;
  RunSummary& summary_;
  JobEffects& effects_;
  std::optional<Term> term_;           // nothing between two terms
  int64_t whole_bytes_ = 0;            // of a whole snapshot
  std::optional<int64_t> disk_step_;   // of the snapshot at the disk
  std::optional<int64_t> saved_step_;  // of the newest term, once it has ended
  std::string end_failure_;
  TransferWatch watch_;
  CheckpointInterval interval_;
};

}  // namespace pushpull
