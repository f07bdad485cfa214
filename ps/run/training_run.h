// The training of a term, and the norms over all servers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/io/run_counts.h"
#include "common/job/barriers.h"
#include "common/net/message.h"
#include "common/net/refusals.h"
#include "common/update/optimizer_options.h"
#include "ps/members/admission.h"
#include "ps/members/committed_work.h"
#include "ps/members/evaluations.h"
#include "ps/members/server_places.h"
#include "ps/members/work_assignment.h"
#include "ps/members/work_groups.h"
#include "ps/run/barrier_snapshots.h"
#include "ps/server/update_logs.h"

namespace pushpull {

class SliceMap;
struct TensorTable;

// Computes the norm of the whole gradient, and the trust ratios of tensors, over all servers: each
// server reports the squares of its slices, and their total goes back to all servers. Part of the
// coordinator's state machine. Not thread-safe.
class NormTotals {
 public:
  //   kept: number of past steps with totals kept for a server that receives their pushes again.
  NormTotals(const TensorTable& table, const SliceMap& map, const OptimizerOptions& optimizer,
             int64_t kept = 0);

  // Adds a server's squares for a step. Returns true if `total` is the answer: to all servers if
  // `all_here_now`, otherwise to this one.
  bool take(const wire::Norms& norms);
  // Drops a lost server's squares for the running step.
  void forget(uint64_t server) { parts_.erase(server); }
  bool all_here_now() const { return all_here_now_; }
  // Returns the number of servers with slices. Only these take part in a step.
  int servers() const { return servers_; }
  const std::optional<wire::NormTotal>& total() const { return total_; }

 private:
  int servers_;
  // A step, and whether its norms are those of tensors, which are the later ones.
  using Stage = std::pair<int64_t, bool>;

  wire::NormTotal total_of_parts() const;

  const TensorTable& table_;
  const OptimizerOptions optimizer_;
  int64_t blocks_;  // of the whole vector
  int64_t kept_;
  Stage stage_{-1, false};
  std::map<uint64_t, wire::Norms> parts_;  // for stage_, by the server's incarnation
  bool all_here_now_ = false;
  std::optional<wire::NormTotal> total_;
  std::map<Stage, wire::NormTotal> known_;  // of past steps
};

// The start of a run, once the tensor table is known: fresh, from initial weights, or resumed.
struct Start {
  int64_t step = 0;
  int64_t updates = 0;
  bool load = false;                 // weights arrive by Load
  bool resumed = false;              // they are those of a checkpoint
  std::string choices = {};          // replace the declared ones; "" keeps those
  RunCounts counts = {};             // of the run so far
  EvaluationRecord evaluation = {};  // likewise
};

// Hears of the results of training.
class TrainingListener {
 public:
  virtual ~TrainingListener() = default;
  // The weights of a barrier exist at server 0.
  //   samples: of this run that they contain.
  virtual void on_barrier_open(int64_t step, int64_t samples) = 0;
  // An evaluation is complete.
  virtual void on_evaluation(const Evaluation& evaluation) = 0;
};

// The part of the job that exists once all members have joined: work and progress, barriers and
// snapshots, evaluations, norms, and the logs of a recorded run. Part of the coordinator's state
// machine. Hands out its parts to be asked only. Not thread-safe.
class TrainingRun : public TrainingObserver {
 public:
  // Borrows options, listener, members and out. Every worker rank must have a member.
  TrainingRun(const CoordinatorOptions& options, const Declaration& declaration, const Start& start,
              TrainingListener& listener, const Membership& members, Actions& out);
  TrainingRun(const TrainingRun&) = delete;  // its parts refer to each other
  TrainingRun& operator=(const TrainingRun&) = delete;

  // Events and questions of server 0.
  void on_commit(const Commit& commit) override;
  void on_barrier_open(int64_t step) override;
  void on_checkpoint_waits(int64_t step) override;
  std::vector<wire::Lease> leases(uint64_t incarnation) override;
  std::optional<wire::Progress> progress() const override { return committed_.progress(); }
  // Adds a checkpoint a few steps ahead. Returns its step, or nothing if it cannot be added now, or
  // not before the end.
  std::optional<int64_t> choose_checkpoint(int64_t steps_ahead);
  // Returns true while some member does not know of the newest one yet: none can be added.
  bool choosing() const { return barriers_.held_step > 0; }
  // Events of the snapshots, as in BarrierSnapshots: members hear of them.
  std::optional<BarrierSnapshots::Request> take_snapshot_request() {
    return snapshots_.take_request();
  }
  void snapshot_gathered(GatheredState snapshot);
  bool snapshot_written(bool saved);
  // Returns what the disk does next. The weights of an evaluation wait for its result: whether they
  // are the best, and whether the run ends there.
  std::optional<BarrierSnapshots::Task> take_task();
  // Sets the number of slices that have been loaded and gathered so far.
  void note_transferred(int64_t slices) { transferred_ = slices; }
  // Notes that a copy of all servers but server 0 is complete.
  void copied(int64_t step, int64_t updates) { places_.copied(step, updates); }
  // Call before each State goes out.
  void on_tick();
  // Handles EvalResult, Norms, Arrived or RecordPart. Returns a refusal if it is invalid.
  Checked on_message(const PeerId& peer, const wire::Header& header);

  // Stops the run at the nearest step with a consistent cut. Returns false if that is its end
  // anyway, or if no worker is left to reach it.
  bool stop();
  // Returns the step at which all servers stand if no push is on its way, or 0 if there is none, or no
  // weights to write.
  int64_t cut_without_workers() const;
  // Returns true once the checkpoint that the run stops with is on disk.
  bool stopped() const { return snapshots_.stopped(); }
  // Returns true once everything is computed, evaluated and on disk.
  bool complete() const;
  // Returns true once every server has sent its whole log, or if the job is not recorded.
  bool logs_complete() const;
  void add_to_worker_state(wire::State* state, const MemberInfo& worker) const;
  void add_to_server_state(wire::State* state, const MemberInfo& server) const;
  // Returns the rank of the next server that has joined in a lost one's place and needs its
  // weights, once.
  std::optional<int> take_joined_server();
  // Notes that the replacement has loaded its weights.
  void server_loaded(uint64_t incarnation);
  // Notes the loss of a server. Returns true if another process may take its place.
  bool replaceable(int64_t now_ms, const MemberInfo& server);
  // What training loses with a worker: no work, work that another one can take over, or also pushes
  // that a lost server lacks, so that the term cannot go on.
  enum class Lost { kNoWork, kWork, kPushes };
  Lost lose_worker(int64_t now_ms, const MemberInfo& worker);
  // Call when workers have joined or left: gives free work to workers, or tells users that training
  // is paused.
  void assign_work() { work_->fill(); }
  // Call when a worker has left by itself: others take its work.
  void share_work_out() { work_->share_out(); }
  // Returns an error text if some work, or the place of a server, has waited for longer than
  // replacement-timeout, else "".
  std::string overdue(int64_t now_ms);

  // ---- queries ----
  int64_t floor() const { return committed_.floor(); }  // the step that training has reached
  const Barriers& barriers() const { return barriers_; }
  int64_t total_steps() const { return total_steps_; }
  int shares() const { return shares_; }
  // Returns the data port of each server, by rank: that of the lost one while a place is empty.
  std::vector<DataPort> server_ports() const;
  const WorkAssignment& work() const { return *work_; }
  const WorkGroups& groups() const { return groups_; }
  // Returns true if the worker has been given work. A spare has not.
  bool has_work(uint64_t incarnation) const;
  // Returns the workers that hold unfinished work of steps up to `step`, or of an evaluation there.
  std::vector<uint64_t> unfinished(int64_t step) const;
  const BarrierSnapshots& snapshots() const { return snapshots_; }
  int64_t transferred() const { return transferred_; }
  const CommittedWork& committed() const { return committed_; }
  const ServerPlaces& places() const { return places_; }
  const Evaluations& evaluations() const { return evaluations_; }
  const FollowedEvaluations& followed() const { return followed_; }
  // Null if the job is not recorded.
  const ServerLogs* logs() const { return logs_.get(); }

 private:
  Checked on_eval_result(const PeerId& peer, const wire::EvalResult& result);
  Checked on_norms(const wire::Norms& norms);
  Checked on_arrived(const wire::Arrived& arrived);
  Checked on_record_part(const PeerId& peer, const wire::RecordPart& part);
  int64_t nearest_cut();
  bool all_know() const;
  bool awaits_evaluation(int64_t step) const;
  void add_to_state(wire::State* state) const;
  void report_bad(const Commit& commit);
  void on_evaluation(const Evaluation& evaluation);
  void end_at(int64_t step);

  const CoordinatorOptions& options_;
  const Start start_;
  const Membership& members_;
  Actions& out_;
  const int64_t total_steps_;
  // The only ones at the coordinator: all its parts see each change at once. They change in
  // choose_checkpoint, on_tick, stop and end_at.
  Barriers barriers_;
  const int shares_;
  const TensorTable table_;
  CommittedWork committed_;
  Evaluations evaluations_;
  FollowedEvaluations followed_;
  BarrierSnapshots snapshots_;
  int64_t transferred_ = 0;  // slices
  TrainingListener& listener_;
  ServerPlaces places_;
  NormTotals norms_;
  const Grants grants_;
  std::unique_ptr<ServerLogs> logs_;
  WorkGroups groups_;
  std::unique_ptr<WorkAssignment> work_;
  int64_t chosen_version_ = -1;  // first State with the newest chosen checkpoint
  bool has_waited_ = false;      // training, for a snapshot
};

}  // namespace pushpull
