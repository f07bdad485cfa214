// The coordinator as a state machine: passes each event to the part that handles it, and composes
// the State that members receive. Runs in the process of the first server. Does no I/O and reads no
// clock. Not thread-safe.
//
// It resends the whole State, with a version: a lost or repeated message costs time only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/members/actions.h"
#include "ps/members/admission.h"
#include "ps/members/membership.h"
#include "ps/run/departures.h"
#include "ps/run/job_phase.h"
#include "ps/run/training_run.h"

namespace pushpull {

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);
  Coordinator(const Coordinator&) = delete;  // its parts refer to each other
  Coordinator& operator=(const Coordinator&) = delete;

  // Remembers the members that left in the term before this one.
  void take_former(const Coordinator& earlier) { members_.take_former(earlier.members_); }

  // ---- events ----
  // Returns a refusal if the message is invalid. The caller counts and logs it.
  Checked on_message(int64_t now_ms, const PeerId& peer, const Message& message);
  void on_disconnect(int64_t now_ms, const PeerId& peer) { members_.on_disconnect(peer, now_ms); }
  void on_tick(int64_t now_ms);
  // Returns true once all members have joined: the program then reads weights and calls `start`.
  bool wants_start() const { return phase_.gathering() && admission_.complete(); }
  // Returns the training, which lives as long as the coordinator.
  TrainingRun& start(int64_t now_ms, const Start& start, TrainingListener& listener);
  // Stops the run at the nearest cut and releases no member. Returns false if no cut is left.
  bool stop();
  void finish();  // call when the summary is written: lets all members leave
  // Ends the job for all members. No single member is at fault.
  void fail(ErrorCode code, const std::string& text) { phase_.fail(now_ms_, code, text, {}); }
  // Lets the members hear that the job is over, for options.holds_end. Later calls have no effect.
  void announce_end(int64_t now_ms) { phase_.announce_end(now_ms); }
  // Ends the job because the server in this process has failed.
  void fail_here(ErrorCode code, const std::string& reason);

  // ---- actions ----
  std::vector<Outgoing> take_outgoing() { return out_.take_messages(); }
  // Notices for users: joins, losses, replacements. Members that were given up in a job that goes on.
  std::vector<std::string> take_notices() { return out_.take_notices(); }
  std::vector<MemberInfo> take_given_up() { return out_.take_given_up(); }
  std::vector<std::string> take_lost() { return out_.take_lost(); }
  // Returns true once all is computed and all members have reported Stats (or a deadline passed).
  bool wants_summary() const { return phase() == wire::PHASE_FINISHING && all_reported_; }
  // Returns true once all members have left (or a deadline passed): the program may end.
  bool over() const { return over_; }

  // ---- queries ----
  wire::Phase phase() const { return phase_.phase(); }
  ErrorCode failure_code() const { return phase_.failure_code(); }
  const std::string& failure_text() const { return phase_.failure_text(); }
  // Returns true once the members may hear that the job is over.
  bool end_announced() const { return phase_.announced(); }
  const Admission& admission() const { return admission_; }
  // Members that left or were lost. After losing a server, start a new term and coordinator.
  const Departures& departures() const { return departures_; }
  const std::optional<Culprit>& culprit() const { return phase_.culprit(); }  // if a single one
  const Declaration& declaration() const { return admission_.declarations().first(); }
  const Membership& members() const { return members_; }
  const TrainingRun* training() const { return training_.get(); }  // null before `start`
  const Barriers& barriers() const;                                // all zero before `start`
  // Returns the part that the server in this process tells of its progress; null before `start`.
  TrainingObserver* observer() { return training_.get(); }
  // Returns a line that names what the job waits for, or "" once training has started.
  std::string waiting_for() const { return phase_.gathering() ? admission_.waiting_for() : ""; }
  uint64_t term_id() const { return options_.term_id; }
  uint64_t self_incarnation() const { return options_.self.incarnation; }
  wire::State state_for_self() const;

 private:
  Checked on_declare(int64_t now_ms, const PeerId& peer, const wire::Declare& declare);
  Checked on_heartbeat(int64_t now_ms, const PeerId& peer, const wire::Heartbeat& heartbeat);
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
  std::unique_ptr<TrainingRun> training_;  // null before the start
  int64_t now_ms_ = 0;                     // time of the latest event
  int64_t last_sent_ms_ = 0;               // time of the latest State
  bool all_reported_ = false;
  bool over_ = false;
};

}  // namespace pushpull
