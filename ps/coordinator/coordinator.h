// The coordinator as a state machine: who belongs to the job, what each worker computes, when the
// job is over or lost. Lives in the first server's process; knows no socket, thread, clock or file.
// One thread.
//
// What members must know goes out as one whole `State` with a version, again and again: lost or
// repeated messages cost nothing but time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/job/barriers.h"
#include "common/job/job.h"
#include "common/update/norm.h"
#include "ps/aggregation/backup_set.h"
#include "ps/coordinator/evaluations.h"
#include "ps/coordinator/lease_pool.h"
#include "ps/coordinator/membership.h"
#include "ps/coordinator/run_totals.h"
#include "ps/coordinator/training_progress.h"
#include "ps/record/server_logs.h"
#include "ps/server/server.h"

namespace pushpull {

struct CoordinatorOptions {
  Job job;
  uint64_t run = 0;
  int servers = 1;
  int workers = 1;
  MemberInfo self;  // server 0, in this process
};

// What was declared by the first worker.
struct Declaration {
  TensorTable table;
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  std::string data_digest;
  std::string numerics;
  std::string choices;  // of GPU algorithms; "": none to choose
};

// How the run starts, once the table is known: fresh, from initial weights, or resumed.
struct Start {
  int64_t step = 0;
  int64_t updates = 0;
  bool load = false;         // weights come by Load
  std::string choices = {};  // instead of those declared; "": these
};

// A barrier that server 0 has opened.
struct OpenedBarrier {
  int64_t step = 0;
  int64_t samples = 0;  // of this run, that are in its weights
  friend bool operator==(const OpenedBarrier&, const OpenedBarrier&) = default;
};

// The member that has ended the job.
struct Culprit {
  std::string host;
  int64_t pid = 0;
  std::string reason;
};

class Coordinator : public TrainingObserver {
 public:
  explicit Coordinator(CoordinatorOptions options);

  // ---- events ----
  // Returns false for a message that does not belong here (the caller counts it).
  bool on_message(int64_t now_ms, const PeerId& peer, const Message& message);
  void on_gone(int64_t now_ms, const PeerId& peer) { members_.gone(peer, now_ms); }
  void on_tick(int64_t now_ms);
  // Everybody is there and has declared: the program reads checkpoint or initial weights, then says
  // so.
  bool wants_start() const { return wants_start_; }
  void start(int64_t now_ms, const Start& start);
  // The snapshot at barrier `step` is here: servers need not keep it any longer.
  void checkpoint_gathered(int64_t now_ms, int64_t step);
  // It is on disk; or, of the start, hashed.
  void checkpoint_done(int64_t now_ms, int64_t step);
  // The summary is written: everybody may go.
  void finish();
  // Ends the job for everybody. Nobody did it.
  void fail(ErrorCode code, const std::string& text);
  // The same, where the server in this process did.
  void fail_here(ErrorCode code, const std::string& reason);

  void on_commit(const Commit& commit) override;
  void on_barrier_open(int64_t step) override;
  void on_checkpoint_waits(int64_t step) override;
  std::vector<wire::Lease> leases(uint64_t incarnation) override;

  // ---- actions ----
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  // Lines for people: joins, losses, replacements.
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }
  // The next barrier whose snapshot must be fetched and given back by checkpoint_done. The first is
  // the start: weights only, for their hash.
  std::optional<int64_t> take_snapshot_request();
  // Those since the last call.
  std::vector<OpenedBarrier> take_opened_barriers() { return std::exchange(opened_, {}); }
  // All is computed, and every member has reported its Stats (or a deadline has passed).
  bool wants_summary() const { return wants_summary_; }
  // Everybody has left (or a deadline has passed): the program may end.
  bool over() const { return over_; }

  // ---- queries ----
  wire::Phase phase() const { return phase_; }
  ErrorCode failure_code() const { return failure_code_; }
  const std::string& failure_text() const { return failure_text_; }
  // Who has ended the job; none where it goes on, or where no single member did.
  const std::optional<Culprit>& culprit() const { return culprit_; }
  const Declaration& declaration() const { return declaration_; }
  const Barriers& barriers() const { return barriers_; }
  int64_t total_steps() const { return total_steps_; }
  int shares() const { return shares_; }
  const Membership& members() const { return members_; }
  const TrainingProgress& training() const { return *training_; }
  // What workers that are gone had used and done, as they last said.
  const RunTotals& departed() const { return departed_; }
  const Evaluations& evaluations() const { return *evaluations_; }
  std::vector<Evaluation> take_evaluations() {
    return evaluations_ ? evaluations_->take_new() : std::vector<Evaluation>();
  }
  // What servers have applied, in a recorded run; else null.
  const ServerLogs* logs() const { return logs_.get(); }
  // The push whose loss or gradient was not finite, where that has ended the job.
  const std::optional<RecordedPush>& failed_push() const { return failed_push_; }
  // One line that says what is being waited for, "" in training.
  std::string waiting_for() const;
  uint64_t run() const { return options_.run; }
  uint64_t self_incarnation() const { return options_.self.incarnation; }
  // The state for the server in this process.
  wire::State state_for_self();

 private:
  struct ShareOwner {
    Range range;
    uint64_t owner = 0;      // incarnation; 0: nobody
    uint64_t evaluator = 0;  // backup:B: who evaluates its chunks while nobody owns it
    int64_t clock = 0;       // steps of it that have reached server 0
    int64_t from_step = 0;   // told to the owner
    int64_t vacant_since_ms = -1;
  };

  bool on_hello(int64_t now_ms, const PeerId& peer, const wire::Hello& hello);
  bool on_declare(int64_t now_ms, const PeerId& peer, const wire::Declare& declare);
  bool on_heartbeat(int64_t now_ms, const PeerId& peer, const wire::Heartbeat& heartbeat);
  bool on_eval_result(const PeerId& peer, const wire::EvalResult& result);
  bool on_norms(const wire::Norms& norms);
  bool on_arrived(const wire::Arrived& arrived);
  bool on_leave(int64_t now_ms, const wire::Leave& leave);
  bool on_record_part(const PeerId& peer, const wire::RecordPart& part);
  bool logs_are_whole() const;

  // Equal jobs are to give equal bits, or a record is to give them again.
  bool same_bits() const;
  bool backup() const { return options_.job.strategy.kind == StrategyKind::kBackup; }
  // Pushes of a step without which it cannot end.
  int64_t needed_shares() const { return shares_ - options_.job.strategy.backups; }
  // Barriers up to here are evaluated.
  int64_t evaluated_barrier() const;
  int servers_with_slices() const;
  // Sends it to every server.
  void tell_servers(const Message& message);
  bool fixed_shares() const { return options_.job.strategy.kind != StrategyKind::kAsync; }
  bool all_reduce() const { return options_.job.strategy.kind == StrategyKind::kAllReduce; }
  bool has_room() const;
  // Refuses a server whose address another one has.
  // By another one of this role, and then this one is refused.
  bool endpoint_taken(const PeerId& peer, wire::Role role, uint64_t incarnation,
                      const std::string& endpoint);
  void add_member(const wire::Hello& hello, int servers);
  bool freeze(const wire::Declare& declare, std::string* why);
  std::string mismatch(const wire::Declare& declare) const;
  void admit_worker(MemberInfo& member);
  void fail_by(const MemberInfo& member, ErrorCode code, const std::string& reason,
               const std::string& text);
  std::string lost_text(const MemberInfo& member, const std::string& reason) const;
  void lose(int64_t now_ms, uint64_t incarnation, const std::string& reason, ErrorCode code);
  void lose_worker(int64_t now_ms, const MemberInfo& member, const std::string& reason,
                   ErrorCode code);
  void promote_spares();
  void fill_vacancies();
  void give_share(ShareOwner& share, uint64_t incarnation);
  // Who has the fewest shares, fewer than `below`; 0: nobody.
  uint64_t least_loaded(int64_t below) const;
  void find_evaluators();
  void say_dropped();
  void check_start();
  void check_vacancies(int64_t now_ms);
  void check_finish(int64_t now_ms);
  void change_phase(wire::Phase phase);
  wire::State state_for(const MemberInfo& member) const;
  // Whom the owners of shares exchange sums with.
  void add_peers(wire::State* state) const;
  void send_states();
  void refuse(const PeerId& peer, ErrorCode code, const std::string& text);
  int free_rank() const;

  const CoordinatorOptions options_;
  Membership members_;
  Declaration declaration_;
  bool declared_ = false;
  wire::Phase phase_ = wire::PHASE_GATHERING;
  int64_t state_version_ = 1;
  bool dirty_ = true;  // the state has changed since it was last sent
  int64_t last_sent_ms_ = 0;
  int64_t phase_since_ms_ = 0;
  int64_t now_ms_ = 0;
  bool wants_start_ = false;
  bool wants_summary_ = false;
  bool over_ = false;
  ErrorCode failure_code_ = ErrorCode::kFailed;
  std::string failure_text_;
  std::optional<Culprit> culprit_;

  Start start_;
  Barriers barriers_;
  int64_t total_steps_ = 0;
  int shares_ = 1;
  std::vector<ShareOwner> share_owners_;
  std::unique_ptr<LeasePool> pool_;
  std::unique_ptr<TrainingProgress> training_;
  std::unique_ptr<Evaluations> evaluations_;
  std::unique_ptr<ServerLogs> logs_;
  std::optional<RecordedPush> failed_push_;
  std::deque<int64_t> snapshots_;
  std::vector<OpenedBarrier> opened_;
  int64_t released_barrier_ = -1;  // snapshots up to here have been gathered
  int64_t written_barrier_ = -1;   // ... and are on disk
  bool said_waits_ = false;        // that training waits for checkpoints
  RunTotals departed_;
  int64_t empty_since_ms_ = -1;  // async: no worker is left since then
  int64_t norm_step_ = -1;
  std::map<uint64_t, wire::Norms> norms_;  // of step norm_step_, by server
  std::optional<wire::NormTotal> norm_total_;
  std::optional<BackupChoice> choice_;

  std::vector<Outgoing> outgoing_;
  std::vector<std::string> notices_;
};

}  // namespace pushpull
