// The coordinator as a state machine: it hands each event to the part that decides about it, and
// puts together the state that members must know. Lives in the first server's process; knows no
// socket, thread, clock or file. One thread.
//
// The state goes out whole, with a version, again and again: lost or repeated messages cost nothing
// but time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/coordinator/departures.h"
#include "ps/coordinator/job_phase.h"
#include "ps/coordinator/training_run.h"
#include "ps/members/actions.h"
#include "ps/members/admission.h"
#include "ps/members/membership.h"

namespace pushpull {

class Coordinator : public TrainingObserver {
 public:
  explicit Coordinator(CoordinatorOptions options);
  Coordinator(const Coordinator&) = delete;  // its parts refer to each other
  Coordinator& operator=(const Coordinator&) = delete;

  // ---- events ----
  // Empty where the message was taken; the caller counts and logs refusals.
  Checked on_message(int64_t now_ms, const PeerId& peer, const Message& message);
  void on_gone(int64_t now_ms, const PeerId& peer) { members_.gone(peer, now_ms); }
  void on_tick(int64_t now_ms);
  // All members are there: the program reads checkpoint or initial weights, then calls `start`.
  bool wants_start() const { return phase_.gathering() && admission_.complete(); }
  void start(int64_t now_ms, const Start& start);
  // The caller has loaded and gathered `slices` slices so far; while the count grows, nobody is stuck.
  void note_transferred(int64_t slices) {
    if (training_) training_->snapshots().note_transferred(slices);
  }
  // The snapshot at barrier `step` has been gathered: servers need not keep it any longer.
  void checkpoint_gathered(int64_t now_ms, int64_t step);
  void checkpoint_done(int64_t now_ms, int64_t step);  // on disk, or given up; hashed
  // The job is told to end: nobody is let go, and the run ends at the nearest cut. False: there is none.
  bool stop();
  void finish();  // the summary is written: all members may leave
  // Ends the job for all members, through no member's fault.
  void fail(ErrorCode code, const std::string& text) { phase_.fail(now_ms_, code, text, {}); }
  // Ends the job because the server in this process has failed.
  void fail_here(ErrorCode code, const std::string& reason);

  void on_commit(const Commit& commit) override;
  void on_barrier_open(int64_t step) override;
  void on_checkpoint_waits(int64_t step) override;
  std::vector<wire::Lease> leases(uint64_t incarnation) override;

  // ---- actions ----
  std::vector<Outgoing> take_outgoing() { return out_.take_messages(); }
  // Lines for people: joins, losses, replacements.
  std::vector<std::string> take_notices() { return out_.take_notices(); }
  // The next barrier whose snapshot must be gathered, then given back by checkpoint_done; the first is
  // the start, weights only, for their hash. writing: an earlier one is still being written.
  std::optional<int64_t> take_snapshot_request(bool writing = false);
  std::vector<OpenedBarrier> take_opened_barriers();
  std::vector<Evaluation> take_evaluations();
  // All is computed, and every member has reported its Stats (or a deadline has passed).
  bool wants_summary() const { return phase() == wire::PHASE_FINISHING && all_reported_; }
  // All members have left (or a deadline has passed): the program may end.
  bool over() const { return over_; }

  // ---- queries ----
  wire::Phase phase() const { return phase_.phase(); }
  ErrorCode failure_code() const { return phase_.failure_code(); }
  const std::string& failure_text() const { return phase_.failure_text(); }
  const Admission& admission() const { return admission_; }
  // Who is gone. A lost server: the caller begins a new term, with another coordinator.
  const Departures& departures() const { return departures_; }
  // The member that has ended the job, if a single one did.
  const std::optional<Culprit>& culprit() const { return phase_.culprit(); }
  const Declaration& declaration() const { return admission_.declarations().first(); }
  const Membership& members() const { return members_; }
  const Barriers& barriers() const;                      // all zero before `start`
  bool started() const { return training_ != nullptr; }  // these six only then
  int64_t total_steps() const { return training_->total_steps(); }
  int shares() const { return training_->shares(); }
  const TrainingProgress& training() const { return training_->progress(); }
  const Evaluations& evaluations() const { return training_->evaluations(); }
  const ServerLogs* logs() const { return training_->logs(); }
  TrainingRun& training_run() { return *training_; }
  // What is being waited for, in a line; "" in training.
  std::string waiting_for() const { return phase_.gathering() ? admission_.waiting_for() : ""; }
  uint64_t run() const { return options_.run; }
  uint64_t self_incarnation() const { return options_.self.incarnation; }
  // The state for the server in this process.
  wire::State state_for_self() const;

 private:
  Checked on_declare(int64_t now_ms, const PeerId& peer, const wire::Declare& declare);
  Checked on_heartbeat(int64_t now_ms, const PeerId& peer, const wire::Heartbeat& heartbeat);
  Checked on_training_message(const PeerId& peer, const wire::Header& header);
  void check_finish(int64_t now_ms);
  wire::State state_for(const MemberInfo& member) const;
  void send_states();
  void send_state(const MemberInfo& member);

  const CoordinatorOptions options_;
  Actions out_;
  Membership members_;
  JobPhase phase_;
  Admission admission_;
  Departures departures_;
  std::unique_ptr<TrainingRun> training_;  // null: before the start
  int64_t now_ms_ = 0;                     // of the latest event
  int64_t last_sent_ms_ = 0;               // states
  bool all_reported_ = false;
  bool over_ = false;
};

}  // namespace pushpull
