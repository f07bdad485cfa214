#include "ps/coordinator/job_driver.h"

#include <utility>

#include "common/base/process.h"
#include "common/base/text.h"
#include "common/layout/slice_map.h"
#include "ps/aggregation/make_aggregation.h"
#include "ps/server/data_plane.h"

namespace pushpull {

namespace {

constexpr int64_t kTickMs = 5;

}  // namespace

JobDriver::JobDriver(CoordinatorOptions options, double join_timeout_s, ServedData& data,
                     JobEffects& effects, const RunHistory& history)
    : options_(std::move(options)),
      join_timeout_s_(join_timeout_s),
      data_(data),
      effects_(effects),
      history_(history),
      coordinator_(std::make_unique<Coordinator>(options_)),
      gathering_(std::make_unique<Gathering>(options_.job, history.trained, join_timeout_s)),
      summary_(options_, history_),
      transfers_(options_, summary_, effects),
      desk_(make_desk()),
      tick_(kTickMs) {}

Checked JobDriver::on_message(Now now, const PeerId& peer, const Message& message) {
  if (message.header.has_status_request()) {
    return desk_->ask(now.awake_ms, peer, message.header.status_request());
  }
  // 0: this process, or a stranger, which is refused as an unknown member.
  const uint64_t run = message.header.run();
  if (run != 0 && run != options_.run) return on_other_term(now, peer, message);
  return coordinator_->on_message(now.awake_ms, peer, message);
}

// A process that joins knows no run yet. A member of an earlier term learns of this one and joins
// it; its other messages are void, except that it leaves.
Checked JobDriver::on_other_term(Now now, const PeerId& peer, const Message& message) {
  const wire::Header& header = message.header;
  if (header.has_hello() || header.has_leave()) {
    return coordinator_->on_message(now.awake_ms, peer, message);
  }
  if (header.has_heartbeat()) send(now, peer, coordinator_->admission().job_text());
  return std::nullopt;
}

bool JobDriver::on_signal(Now now, int signal) {
  if (end_.take(now.ms, signal)) return true;
  stop(now);
  return false;
}

std::string JobDriver::stop_cause() const {
  return signal_name(end_.signal()) + " (server 0 (" + options_.self.host + ", pid " +
         std::to_string(options_.self.pid) + "))";
}

// Called in each term again: the request concerns the run, not a term.
void JobDriver::stop(Now now) {
  const wire::Phase phase = coordinator_->phase();
  if (phase >= wire::PHASE_FINISHING) return;
  const bool untouched = phase == wire::PHASE_GATHERING && !history_.trained;
  if (untouched || end_.overdue(now.ms, EndRequest::kStopMs)) {
    ended_by_signal_ = true;
    const std::string late = "; the next consistent cut was not on disk within the grace of " +
                             std::to_string(EndRequest::kStopMs / 1000) +
                             " s: resume from the last checkpoint";
    return coordinator_->fail(ErrorCode::kFailed,
                              "[job] ended by " + stop_cause() + (untouched ? "" : late));
  }
  if (coordinator_->barriers().stop_step > 0) return;
  data_.work();  // count all that arrived before naming the cut
  const bool stops = coordinator_->stop();
  if (stops) tell_server_here(coordinator_->state_for_self());
  if (stops || (phase == wire::PHASE_TRAINING && !std::exchange(stop_said_, true))) {
    effects_.show_line("[job] " + stop_cause() + ": the run " +
                       (stops ? "stops with a checkpoint at step " +
                                    std::to_string(coordinator_->barriers().stop_step)
                              : "has no consistent cut before its end"));
  }
}

int JobDriver::exit_code() const {
  if (ended_by_signal_) return 128 + end_.signal();
  if (coordinator_->phase() != wire::PHASE_FAILED) {
    return end_failure().empty() ? 0 : static_cast<int>(ErrorCode::kIo);
  }
  return static_cast<int>(coordinator_->failure_code());
}

void JobDriver::on_turn(Now now) {
  transfers_.exchange(now, *coordinator_);
  report_own(now);
  if (data_.server() != nullptr) data_.server()->offer_leases();
  if (tick_.due(now.ms)) tick(now);
  deliver(now);
}

void JobDriver::tick(Now now) {
  coordinator_->note_transferred(transfers_.transferred());
  coordinator_->on_tick(now.awake_ms);
  effects_.members_lost(coordinator_->take_given_up());
  effects_.members_lost(gathering_->take_missing(now.awake_ms, coordinator_->members()));
  if (coordinator_->phase() == wire::PHASE_TRAINING && coordinator_->departures().lost_server())
    begin_term(now);
  if (coordinator_->started())
    history_.recoveries += coordinator_->training_run().places().take_recovered();
  if (ready(now)) start(now);
  if (end_.asked()) stop(now);
  transfers_.on_tick(now, *coordinator_);
  say_waiting(now);
  show_moments(now, false);
  if (coordinator_->wants_summary()) summarise(now);
  tell_status(now);
}

// ---- the server in this process ----

// Passes the requests and the new log entries of the server in this process to the coordinator.
void JobDriver::report_own(Now now) {
  Server* server = data_.server();
  if (server == nullptr) return;
  if (server->waiting_arrived()) {
    Message message;
    *message.header.mutable_arrived() = *server->waiting_arrived();
    on_message(now, "", message);
  }
  pass_norms(now);
  for (wire::RecordPart& part : server->log().take_rest()) {
    part.set_incarnation(coordinator_->self_incarnation());
    Message message;
    *message.header.mutable_record_part() = std::move(part);
    on_message(now, "", message);
  }
}

void JobDriver::pass_norms(Now now) {
  if (!data_.server()->waiting_norms()) return;
  Message message;
  *message.header.mutable_norms() = *data_.server()->waiting_norms();
  on_message(now, "", message);
}

// ---- start and snapshots ----

// Restarts all members from the newest checkpoint. State of the earlier term is void.
void JobDriver::begin_term(Now now) {
  effects_.show_line(
      *coordinator_->departures().lost_server() +
      "; all members go back to the newest checkpoint once another server has joined");
  ++history_.recoveries;
  history_.quarantined += coordinator_->departures().quarantined();
  history_.reached_step = coordinator_->training().floor();
  const TermIds ids = effects_.begin_term(options_.term + 1, history_);
  ++options_.term;
  options_.run = ids.run;
  options_.grant_key = ids.grant_key;
  std::vector<MemberInfo> members;
  for (const auto& [incarnation, member] : coordinator_->members().all()) {
    if (!member.peer.empty()) members.push_back(member);
  }
  transfers_.end_term();
  data_.end_term(coordinator_->run());
  summary_.end_term();
  coordinator_ = std::make_unique<Coordinator>(options_);
  desk_ = make_desk();
  gathering_ = std::make_unique<Gathering>(options_.job, true, join_timeout_s_);
  // A member that misses this message learns of the term by its next heartbeat.
  for (const MemberInfo& member : members) {
    send(now, member.peer, coordinator_->admission().job_text());
  }
  gathering_->expect(std::move(members));
}

// Returns true if the term can start: all members have joined, or, in a later term of a job with
// on-worker-loss = continue, all that can be expected.
bool JobDriver::ready(Now now) {
  if (transfers_.on_disk()) return false;  // the disk is busy with a checkpoint of an earlier term
  if (coordinator_->wants_start()) return true;
  if (coordinator_->phase() != wire::PHASE_GATHERING) return false;
  return gathering_->begins_without_others(now.awake_ms, coordinator_->admission().has_quorum());
}

void JobDriver::start(Now now) {
  const Declaration& declaration = coordinator_->declaration();
  const StartPoint point = effects_.load_start(declaration);
  say_notices();
  Start start;
  if (point.weights) start = {point.weights->step, point.weights->updates, true};
  start.choices = point.choices;
  start.counts = point.counts;
  coordinator_->start(now.awake_ms, start);
  const bool again = history_.trained;
  note_start(point);
  summary_.begin_term(now.ms, *coordinator_, point.initial_weights_sha256);
  effects_.started(*coordinator_, point, history_);
  const int64_t slices = transfers_.begin_term(now, *coordinator_, point);
  effects_.show_line((again ? "training goes on: " : "training starts: ") +
                     plural(declaration.table.total, "parameter") + " in " +
                     plural(slices, "slice") + ", steps " +
                     std::to_string(coordinator_->barriers().start_step) + " to " +
                     std::to_string(coordinator_->barriers().end_step) + ", strategy " +
                     options_.job.strategy.to_string());
}

void JobDriver::note_start(const StartPoint& point) {
  const int64_t step = coordinator_->barriers().start_step;
  if (!std::exchange(history_.trained, true)) {
    history_.first_step = step;
    if (point.resumed) history_.resumed_from_step = step;
  } else if (history_.reached_step > step) {
    history_.steps_repeated += history_.reached_step - step;
  }
}

// ---- user output ----

void JobDriver::say_waiting(Now now) {
  const std::string waiting = coordinator_->waiting_for();
  const auto line = gathering_->line(now.awake_ms, waiting);
  if (const auto error = gathering_->overdue(now.awake_ms, waiting)) {
    coordinator_->fail(error->code(), error->what());
  }
  if (line) effects_.show_line(*line);
}

void JobDriver::show_moments(Now now, bool last) {
  const wire::Phase phase = coordinator_->phase();
  if (phase != wire::PHASE_TRAINING && phase != wire::PHASE_FINISHING) return;
  for (const Moment& moment : summary_.moments(now.ms, data_, last)) {
    effects_.show_moment(moment);
  }
}

void JobDriver::summarise(Now now) {
  show_moments(now, true);
  Summary summary = summary_.summary(data_.stats());
  const int64_t stopped_at = coordinator_->barriers().stop_step;
  if (stopped_at == 0) {
    effects_.write_summary(*coordinator_, std::move(summary));
    return coordinator_->finish();
  }
  summary.stopped_by = stop_cause();
  effects_.write_summary(*coordinator_, std::move(summary));
  coordinator_->fail(ErrorCode::kStopped,
                     "[job] stopped by " + stop_cause() + " at step " + std::to_string(stopped_at) +
                         ": its checkpoint is on disk, the same command with resume goes on");
}

std::unique_ptr<StatusDesk> JobDriver::make_desk() const {
  return std::make_unique<StatusDesk>(coordinator_->members(), options_.self.incarnation);
}

void JobDriver::tell_status(Now now) {
  if (desk_->due(now.awake_ms, coordinator_->phase())) {
    const CommittedWork* committed = coordinator_->started() ? &coordinator_->training() : nullptr;
    const wire::Stats own = data_.stats();
    desk_->update(now.awake_ms, committed, own, summary_.facts(now.ms, *coordinator_, own));
  }
  if (const auto text = desk_->take_file()) effects_.show_members(*text);
  for (Outgoing& out : desk_->take_answers(now.awake_ms, now.utc_ms)) {
    wire::StatusReply* reply = out.message.header.mutable_status_reply();
    reply->set_first_run(options_.first_run);
    reply->set_encrypt_data(options_.job.encrypt_data);
    effects_.send(out.to, out.message);
  }
}

void JobDriver::say_notices() {
  for (const std::string& notice : coordinator_->take_notices()) effects_.show_line(notice);
}

// ---- delivery ----

// Delivers the outgoing messages and notices of the state machines.
void JobDriver::deliver(Now now) {
  if (coordinator_->phase() >= wire::PHASE_FINISHED && !std::exchange(end_noted_, true)) {
    RunEnd end{.run = options_.run, .exit_code = exit_code()};
    end.finished = coordinator_->phase() == wire::PHASE_FINISHED;
    end.code = static_cast<int>(coordinator_->failure_code());
    end.text = coordinator_->failure_text() + end_failure();  // one of them is empty
    end.members = std::ssize(coordinator_->members().all()) - 1;
    effects_.ended(end);
  }
  if (deliver_outgoing(now)) {
    pass_norms(now);
    deliver_outgoing(now);
  }
  // Training begins once the first weights exist.
  if (data_.server() != nullptr) summary_.training_began(now.ms);
  summary_.note_barriers(now.ms);
  say_notices();
}

// Returns true if the server in this process has received a Chosen, and may wait for a norm now.
// Waiting for the next turn's poll would cost that time in each step.
bool JobDriver::deliver_outgoing(Now now) {
  bool chosen = false;
  for (Outgoing& out : coordinator_->take_outgoing()) {
    if (out.to.empty()) {
      chosen = deliver_here(out.message.header) || chosen;
    } else {
      send(now, out.to, std::move(out.message));
    }
  }
  return chosen;
}

void JobDriver::send(Now now, const PeerId& to, Message message) {
  message.header.set_run(options_.run);
  if (!effects_.send(to, message)) coordinator_->on_gone(now.awake_ms, to);
}

void JobDriver::tell_server_here(const wire::State& state) {
  data_.on_state({options_.job, options_.run, coordinator_->self_incarnation(), state},
                 coordinator_.get());
}

bool JobDriver::deliver_here(const wire::Header& header) {
  if (header.has_state()) {
    tell_server_here(header.state());
  }
  data_.on_answer(header);
  return header.has_chosen() && data_.server() != nullptr;
}

}  // namespace pushpull
