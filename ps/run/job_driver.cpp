#include "ps/run/job_driver.h"

#include <utility>

#include "common/base/text.h"
#include "common/layout/slice_map.h"
#include "ps/server/aggregation.h"
#include "ps/server/data_plane.h"

namespace pushpull {

namespace {

constexpr int64_t kTickMs = 5;

CoordinatorOptions holding_end(CoordinatorOptions options, const RunHistory& history) {
  options.holds_end = true;
  options.declared = history.declared;
  return options;
}

}  // namespace

JobDriver::JobDriver(CoordinatorOptions options, double join_timeout_s, ServedData& data,
                     JobEffects& effects, const RunHistory& history, const StopOptions& stops)
    : options_(holding_end(std::move(options), history)),
      join_timeout_s_(join_timeout_s),
      data_(data),
      effects_(effects),
      history_(history),
      coordinator_(std::make_unique<Coordinator>(options_)),
      files_(options_.job.progress_timeout_s),
      term_start_(
          std::make_unique<TermStart>(options_, history.trained, join_timeout_s, files_, effects)),
      summary_(options_, history_),
      transfers_(options_, summary_, effects),
      desk_(make_desk()),
      tick_(kTickMs),
      stops_(stops, options_.self, files_, data, transfers_, effects) {}

Checked JobDriver::on_message(Now now, const PeerId& peer, const Message& message) {
  if (message.header.has_status_request()) {
    return desk_->ask(now.awake_ms, peer, message.header.status_request());
  }
  // 0: this process, or a stranger, which is refused as an unknown member.
  const uint64_t term_id = message.header.term_id();
  if (term_id != 0 && term_id != options_.term_id) return on_other_term(now, peer, message);
  if (message.header.has_own_weights()) {
    return term_start_->on_weights(now, *coordinator_, message);
  }
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
  if (stops_.take(now, signal, *coordinator_)) return true;
  advance_stops(now);
  return false;
}

void JobDriver::advance_stops(Now now) {
  const int64_t held = coordinator_->barriers().held_step;
  if (stops_.advance(now, *coordinator_, history_.trained)) {
    notify_server_here(coordinator_->state_for_self());
  }
  tell_hold(held);
}

// A chosen checkpoint is a few steps ahead of the server in this process, which must hold that step
// before it handles other messages: the State of the next tick may come after the step.
//   before: the held step before a checkpoint may have been chosen.
void JobDriver::tell_hold(int64_t before) {
  if (coordinator_->barriers().held_step <= before) return;
  notify_server_here(coordinator_->state_for_self());
}

void JobDriver::on_turn(Now now) {
  transfers_.exchange(now);
  report_own(now);
  if (data_.server() != nullptr) data_.server()->offer_leases();
  if (tick_.due(now.ms)) tick(now);
  deliver(now);
}

void JobDriver::tick(Now now) {
  coordinator_->on_tick(now.awake_ms);
  effects_.members_lost(coordinator_->take_given_up());
  effects_.members_lost(term_start_->take_missing(now.awake_ms, coordinator_->members()));
  save_term();
  start_if_ready(now);
  advance_stops(now);
  tick_transfers(now);
  if (const auto error = term_start_->wait_for_members(now, *coordinator_)) {
    coordinator_->fail(error->code(), error->what());
  }
  show_moments(now, false);
  if (coordinator_->wants_summary() && !files_.busy()) summarise(now);
  watch_files(now);
  ending_.on_tick(now, *coordinator_);
  grace_over_ = stops_.request().overdue(now) && coordinator_->phase() > wire::PHASE_FINISHING;
  publish_status(now);
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

// ---- weights and files ----

void JobDriver::tick_transfers(Now now) {
  const bool server_lost = coordinator_->departures().lost_server().has_value();
  const int64_t held = coordinator_->barriers().held_step;
  if (const auto error = transfers_.on_tick(now, coordinator_->phase(), server_lost)) {
    coordinator_->fail(error->code(), error->what());
  }
  tell_hold(held);
}

void JobDriver::watch_files(Now now) {
  if (!files_.busy()) return;
  files_.running(now.awake_ms, effects_.file_wait(), effects_.file_bytes());
  if (const auto notice = files_.take_notice(now.awake_ms)) effects_.show_line(*notice);
  if (!files_.overdue(now.awake_ms)) return;
  coordinator_->fail(ErrorCode::kIo, files_.overdue_text(now.awake_ms));
}

void JobDriver::on_files(Now now, const FilesDone& done) {
  const FileStep step = files_.end();
  if (done.error) std::rethrow_exception(done.error);
  const wire::Phase phase = coordinator_->phase();
  switch (step) {
    case FileStep::kLoad:
      term_start_->loaded(*done.start);
      return start_if_ready(now);
    case FileStep::kOpen:
      term_start_->opened();
      return start_if_ready(now);
    case FileStep::kTerm:
      // Training may have ended meanwhile: nothing was missing but the lost server's farewell.
      if (phase == wire::PHASE_TRAINING) begin_term(now);
      return;
    case FileStep::kSummary:
      if (phase == wire::PHASE_FINISHING) ending_.save(*coordinator_);
      return;
    case FileStep::kEnd:
      return ending_.saved(now, *coordinator_);
    case FileStep::kClose:
      return;
  }
}

// ---- terms ----

// No member hears of a term that term.json does not have. Until it is written, the old term goes on
// without the lost server.
void JobDriver::save_term() {
  const std::optional<std::string>& lost = coordinator_->departures().lost_server();
  if (coordinator_->phase() != wire::PHASE_TRAINING || !lost || files_.busy()) return;
  effects_.show_line(
      *lost + "; all members go back to the newest checkpoint once another server has joined");
  files_.begin(FileStep::kTerm);
  effects_.save_term(options_.term + 1, TermStart::after_loss(history_, *coordinator_));
}

// Restarts all members from the newest checkpoint. State of the earlier term is void.
void JobDriver::begin_term(Now now) {
  history_ = TermStart::after_loss(history_, *coordinator_);
  const TermIds ids = effects_.begin_term(options_.term + 1);
  ++options_.term;
  options_.term_id = ids.term_id;
  options_.grant_key = ids.grant_key;
  options_.declared = history_.declared;
  std::vector<MemberInfo> members;
  for (const auto& [incarnation, member] : coordinator_->members().all()) {
    if (!member.peer.empty()) members.push_back(member);
  }
  transfers_.end_term();
  data_.end_term(coordinator_->term_id());
  summary_.end_term(coordinator_->take_lost());
  const auto ended = std::exchange(coordinator_, std::make_unique<Coordinator>(options_));
  coordinator_->take_former(*ended);
  desk_ = make_desk(desk_->began_ms());
  term_start_ = std::make_unique<TermStart>(options_, true, join_timeout_s_, files_, effects_);
  // A member that misses this message learns of the term by its next heartbeat.
  for (const MemberInfo& member : members) {
    send(now, member.peer, coordinator_->admission().job_text());
  }
  term_start_->expect(std::move(members));
}

void JobDriver::start_if_ready(Now now) {
  if (term_start_->advance(now, *coordinator_, history_, transfers_.uses_disk())) start(now);
}

void JobDriver::start(Now now) {
  const bool again = history_.trained;
  history_ = term_start_->history(history_);
  TrainingRun& run = coordinator_->start(now.awake_ms, term_start_->start(), summary_);
  const StartPoint point = term_start_->take_point();
  summary_.begin_term(now.ms, run.committed().counts().samples, point);
  if (again) summary_.went_back(run.barriers().start_step);
  const Declaration& declaration = coordinator_->declaration();
  effects_.started(declaration, run.barriers().start_step);
  const int64_t slices =
      transfers_.begin_term(now, run, coordinator_->members(), declaration, point);
  effects_.show_line(term_start_->line(*coordinator_, slices));
  tick_transfers(now);  // its deadline begins before the workers'
}

// ---- user output ----

void JobDriver::show_moments(Now now, bool last) {
  const wire::Phase phase = coordinator_->phase();
  if (phase != wire::PHASE_TRAINING && phase != wire::PHASE_FINISHING) return;
  for (const RunFigures& moment : summary_.moments(now.ms, *coordinator_, data_, last)) {
    effects_.show_moment(moment);
  }
}

void JobDriver::summarise(Now now) {
  show_moments(now, true);
  RunFigures summary = summary_.summary(*coordinator_, data_.stats());
  if (coordinator_->barriers().stop_step > 0) summary.stopped_by = stops_.request().cause();
  files_.begin(FileStep::kSummary);
  effects_.write_summary(std::move(summary));
}

std::unique_ptr<StatusDesk> JobDriver::make_desk(int64_t began_ms) const {
  return std::make_unique<StatusDesk>(coordinator_->members(), options_.self.incarnation, began_ms);
}

void JobDriver::publish_status(Now now) {
  if (desk_->due(now.awake_ms, coordinator_->phase())) {
    const TrainingRun* const run = coordinator_->training();
    const CommittedWork* committed = run == nullptr ? nullptr : &run->committed();
    const wire::Stats own = data_.stats();
    RunFigures figures = summary_.figures(now.ms, *coordinator_, own);
    figures.exit_code = exit_code();
    const WorkGroups* groups = run == nullptr ? nullptr : &run->groups();
    figures = desk_->update(now.awake_ms, committed, groups, own, std::move(figures));
    effects_.show_status(desk_->view(now.awake_ms, committed), figures);
  }
  if (const auto text = desk_->take_file()) effects_.show_members(*text);
  for (Outgoing& out : desk_->take_answers(now.awake_ms, now.utc_ms)) {
    wire::StatusReply* reply = out.message.header.mutable_status_reply();
    reply->set_run_id(options_.run_id);
    reply->set_encrypt_data(options_.job.encrypt_data);
    effects_.send(out.to, out.message);
  }
}

// ---- delivery ----

// Delivers the outgoing messages and notices of the state machines.
void JobDriver::deliver(Now now) {
  while (deliver_outgoing(now)) pass_norms(now);
  // Training begins once the first weights exist.
  if (data_.server() != nullptr) summary_.training_began(now.ms);
  summary_.note_barriers(now.ms, coordinator_->barriers());
  for (const std::string& notice : coordinator_->take_notices()) effects_.show_line(notice);
}

// Returns true if the server in this process has received a Chosen or a NormTotal, and may wait for
// a norm now.
// Waiting for the next turn's poll would cost that time in each step.
bool JobDriver::deliver_outgoing(Now now) {
  bool may_wait = false;
  for (Outgoing& out : coordinator_->take_outgoing()) {
    if (out.to.empty()) {
      may_wait = deliver_here(out.message.header) || may_wait;
    } else {
      send(now, out.to, std::move(out.message));
    }
  }
  return may_wait;
}

void JobDriver::send(Now now, const PeerId& to, Message message) {
  message.header.set_term_id(options_.term_id);
  if (!effects_.send(to, message)) coordinator_->on_disconnect(now.awake_ms, to);
}

void JobDriver::notify_server_here(const wire::State& state) {
  data_.on_state({options_.job, options_.term_id, coordinator_->self_incarnation(), state},
                 coordinator_->observer());
}

bool JobDriver::deliver_here(const wire::Header& header) {
  if (header.has_state()) notify_server_here(header.state());
  data_.on_answer(header);
  return (header.has_chosen() || header.has_norm_total()) && data_.server() != nullptr;
}

}  // namespace pushpull
