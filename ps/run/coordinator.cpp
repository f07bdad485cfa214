#include "ps/run/coordinator.h"

#include <algorithm>
#include <utility>

#include "common/base/text.h"
#include "common/net/model_wire.h"
#include "ps/members/ended_run.h"
#include "ps/members/message_checks.h"

namespace pushpull {

namespace {

constexpr int64_t kStateIntervalMs = 500;  // upper limit; several fit into a heartbeat-timeout
constexpr size_t kMaxWaitBytes = 200;      // of a worker's text

// Returns true if the server is in a lost one's place and has not begun to load its weights.
//   run: null before the start.
bool lacks_weights(const TrainingRun* run, const MemberInfo& member) {
  return member.role == wire::ROLE_SERVER && run != nullptr && !run->places().is_settled(member);
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)),
      members_(options_.job.heartbeat_timeout_s),
      phase_(out_, options_.holds_end),
      admission_(options_, members_, out_),
      departures_(options_.job, members_, admission_, phase_, training_, out_) {}

// ---- messages ----

Checked Coordinator::on_message(int64_t now_ms, const PeerId& peer, const Message& message) {
  now_ms_ = now_ms;
  const wire::Header& header = message.header;
  const std::string type = "type " + std::to_string(header.body_case());
  switch (header.body_case()) {
    case wire::Header::kHello:
      return admission_.on_hello(now_ms, peer, header.hello(), phase());
    case wire::Header::kDeclare:
      return on_declare(now_ms, peer, header.declare());
    case wire::Header::kHeartbeat:
      return on_heartbeat(now_ms, peer, header.heartbeat());
    case wire::Header::kLeave:
      departures_.on_leave(now_ms, header.leave());
      return std::nullopt;
    case wire::Header::kEvalResult:
    case wire::Header::kNorms:
    case wire::Header::kArrived:
    case wire::Header::kRecordPart:
      if (training_) return training_->on_message(peer, header);
      return refused("not-training", "a job that has started", type + " before the start");
    default:
      return refused("wrong-type", "a message for the coordinator", type);
  }
}

Checked Coordinator::on_declare(int64_t now_ms, const PeerId& peer, const wire::Declare& declare) {
  Admission::Declared declared = admission_.on_declare(now_ms, peer, declare, phase());
  if (declared.admitted && phase_.training()) {
    admission_.promote_spares();
    training_->assign_work();
  }
  if (declared.job_error && phase_.gathering()) {
    fail(declared.job_error->code(), declared.job_error->what());
  }
  return std::move(declared.refusal);
}

Checked Coordinator::on_heartbeat(int64_t now_ms, const PeerId& peer,
                                  const wire::Heartbeat& heartbeat) {
  if (Checked refusal = check_stats(heartbeat.stats())) return refusal;
  MemberInfo* member = members_.find(heartbeat.incarnation());
  if (member == nullptr) {
    // The member was dropped, or belongs to another run.
    out_.refuse(
        peer, ErrorCode::kPeerLost,
        "[job] the coordinator has given up on this process: it was silent, or computed nothing, "
        "for too long; start it again");
    return std::nullopt;
  }
  members_.heard(*member, peer, now_ms);
  member->state_version = std::max(member->state_version, heartbeat.state_version());
  if (heartbeat.told_to_end() != 0 && member->end_request_ms < 0) member->end_request_ms = now_ms;
  member->stats = heartbeat.stats();
  member->stats.DiscardUnknownFields();
  if (member->role == wire::ROLE_WORKER) member->stats.clear_staleness();
  member->stats.set_waits_for(printable(member->stats.waits_for(), kMaxWaitBytes));
  return std::nullopt;
}

// ---- starting and training ----

TrainingRun& Coordinator::start(int64_t now_ms, const Start& start, TrainingListener& listener) {
  now_ms_ = now_ms;
  if (!start.choices.empty()) admission_.set_choices(start.choices);
  training_ =
      std::make_unique<TrainingRun>(options_, declaration(), start, listener, members_, out_);
  admission_.begin_training();
  phase_.enter(now_ms, wire::PHASE_TRAINING);
  admission_.promote_spares();
  training_->assign_work();
  return *training_;
}

const Barriers& Coordinator::barriers() const {
  static const Barriers none;
  return training_ ? training_->barriers() : none;
}

// ---- the end ----

void Coordinator::fail_here(ErrorCode code, const std::string& reason) {
  departures_.fail_here(now_ms_, *members_.find(self_incarnation()), code, reason);
}

bool Coordinator::stop() {
  departures_.hold_members();
  return phase_.training() && training_->stop();
}

void Coordinator::finish() { phase_.enter(now_ms_, wire::PHASE_FINISHED); }

void Coordinator::check_finish(int64_t now_ms) {
  if (phase_.training() && (training_->complete() || training_->stopped())) {
    phase_.enter(now_ms, wire::PHASE_FINISHING);
    const std::string notice = training_->work().closing_notice();
    if (!notice.empty()) out_.notice(notice);
  }
  const bool late = phase_.overdue(now_ms);
  if (phase() == wire::PHASE_FINISHING) {
    const auto& all = members_.all();
    const bool reported = std::all_of(all.begin(), all.end(), [&](const auto& entry) {
      return entry.second.peer.empty() || lacks_weights(training_.get(), entry.second) ||
             entry.second.state_version >= out_.state_version();
    });
    all_reported_ = (reported && training_->logs_complete()) || late;
  }
  if (phase_.ended() && !phase_.held()) {
    admission_.end_waiting(end_without_place(
        !phase_.failed(), static_cast<int>(phase_.failure_code()), phase_.failure_text()));
    over_ = members_.all().size() <= 1 || late;
  }
}

void Coordinator::on_tick(int64_t now_ms) {
  now_ms_ = now_ms;
  departures_.on_tick(now_ms);
  check_finish(now_ms);
  if (phase_.held()) return;
  const auto interval_ms =
      std::min(kStateIntervalMs, static_cast<int64_t>(options_.job.heartbeat_timeout_s * 200));
  const bool due = now_ms - last_sent_ms_ >= interval_ms;
  const std::set<uint64_t> lacking = out_.take_lacking();
  if (out_.take_state_wanted() || due) return send_states();
  // A process that repeats Hello gets one answer each time, not one for each member.
  for (const uint64_t incarnation : lacking) {
    if (const MemberInfo* member = members_.find(incarnation)) send_state(*member);
  }
}

// ---- the state ----

wire::State Coordinator::state_for(const MemberInfo& member) const {
  wire::State state;
  state.set_version(out_.state_version());
  phase_.add_to(&state);
  state.set_rank(member.rank);
  state.set_declared(member.declared);
  state.set_let_go(member.may_leave);
  state.set_unheard(member.unheard);
  if (!training_) return state;
  if (member.role == wire::ROLE_WORKER) {
    training_->add_to_worker_state(&state, member);
    state.set_choices(admission_.declarations().shared_choices());
    if (member.stage >= 0) to_wire(declaration().table, state.mutable_tensors());
  } else {
    training_->add_to_server_state(&state, member);
    to_wire(declaration().table, state.mutable_tensors());
  }
  return state;
}

wire::State Coordinator::state_for_self() const {
  return state_for(*members_.find_rank(wire::ROLE_SERVER, 0));
}

void Coordinator::send_states() {
  last_sent_ms_ = now_ms_;
  // Servers come first: they must know a worker before it pushes.
  for (const wire::Role role : {wire::ROLE_SERVER, wire::ROLE_WORKER}) {
    for (const auto& [incarnation, member] : members_.all()) {
      if (member.role == role) send_state(member);
    }
  }
}

void Coordinator::send_state(const MemberInfo& member) {
  // until it has its weights it needs to know the end only
  if (lacks_weights(training_.get(), member) && !phase_.ended()) return;
  Message message;
  *message.header.mutable_state() = state_for(member);
  out_.send(member.peer, std::move(message));
}

}  // namespace pushpull
