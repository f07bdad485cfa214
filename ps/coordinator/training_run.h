// The part of the job that exists once everybody is there: the work and its progress, barriers and
// their snapshots, evaluations, norms, and what a recorded run has applied. Part of the
// coordinator's state machine; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/job/barriers.h"
#include "common/net/message.h"
#include "common/net/refusal.h"
#include "ps/coordinator/barrier_snapshots.h"
#include "ps/coordinator/norm_totals.h"
#include "ps/coordinator/server_places.h"
#include "ps/members/admission.h"
#include "ps/record/server_logs.h"
#include "ps/work/chosen_checkpoints.h"
#include "ps/work/evaluations.h"
#include "ps/work/training_progress.h"
#include "ps/work/work_assignment.h"

namespace pushpull {

// How the run starts, once the table is known: fresh, from initial weights, or resumed.
struct Start {
  int64_t step = 0;
  int64_t updates = 0;
  bool load = false;         // weights come by Load
  std::string choices = {};  // instead of those declared; "": these
  RunCounts counts = {};     // of the run so far
};

class TrainingRun {
 public:
  // Borrows options, members and out. Every worker rank has a member.
  TrainingRun(const CoordinatorOptions& options, const Declaration& declaration, const Start& start,
              const Membership& members, Actions& out);
  TrainingRun(const TrainingRun&) = delete;  // its parts refer to each other
  TrainingRun& operator=(const TrainingRun&) = delete;

  // Events of server 0.
  void on_commit(const Commit& commit);
  void on_barrier_open(int64_t step);
  void on_checkpoint_waits(int64_t step);
  // checkpoint-every = auto: a checkpoint is due, after some steps more. Returns where it will be;
  // empty: not now, or only at the end.
  std::optional<int64_t> choose_checkpoint(int64_t steps_ahead);
  // Before each state goes out.
  void on_tick();
  // Messages of members.
  Checked on_eval_result(const PeerId& peer, const wire::EvalResult& result);
  Checked on_norms(const wire::Norms& norms);
  Checked on_arrived(const wire::Arrived& arrived);
  Checked on_record_part(const PeerId& peer, const wire::RecordPart& part);

  // The run stops at the nearest step at which there is a consistent cut. False: that is its end anyway.
  bool stop();
  // The checkpoint that it stops with is on disk.
  bool stopped() const { return snapshots_.stopped(); }
  // Everything is computed, evaluated and on disk.
  bool complete() const;
  // Every server has handed in all that it says it has logged, where the job is recorded.
  bool logs_complete() const;
  void add_to_worker_state(wire::State* state, const MemberInfo& worker) const;
  void add_to_server_state(wire::State* state, const MemberInfo& server) const;
  // The next server that has come to a lost one's place and lacks its weights: its rank, once.
  std::optional<int> take_joined_server();
  // It has the weights of the one whose place it has taken.
  void server_loaded(uint64_t incarnation);
  // Another process may take this server's place.
  bool replaceable(int64_t now_ms, const MemberInfo& server);

  const Barriers& barriers() const { return barriers_; }
  int64_t total_steps() const { return total_steps_; }
  int shares() const { return shares_; }
  WorkAssignment& work() { return *work_; }
  const WorkAssignment& work() const { return *work_; }
  BarrierSnapshots& snapshots() { return snapshots_; }
  const BarrierSnapshots& snapshots() const { return snapshots_; }
  const TrainingProgress& progress() const { return progress_; }
  ServerPlaces& places() { return places_; }
  const ServerPlaces& places() const { return places_; }
  Evaluations& evaluations() { return evaluations_; }
  const Evaluations& evaluations() const { return evaluations_; }
  // Null where the job is not recorded.
  const ServerLogs* logs() const { return logs_.get(); }

 private:
  void add_to_state(wire::State* state) const;
  void tell_bad(const Commit& commit);

  const CoordinatorOptions& options_;
  const Start start_;
  const Membership& members_;
  Actions& out_;
  const int64_t total_steps_;
  Barriers barriers_;
  const int shares_;
  const TensorTable table_;
  TrainingProgress progress_;
  Evaluations evaluations_;
  BarrierSnapshots snapshots_;
  ServerPlaces places_;
  NormTotals norms_;
  const Grants grants_;
  std::unique_ptr<ServerLogs> logs_;
  std::unique_ptr<WorkAssignment> work_;
  ChosenCheckpoints chosen_;
};

}  // namespace pushpull
