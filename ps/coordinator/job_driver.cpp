#include "ps/coordinator/job_driver.h"

#include <utility>

#include "common/base/text.h"
#include "common/layout/slice_map.h"
#include "ps/aggregation/make_aggregation.h"

namespace pushpull {

namespace {

constexpr int64_t kTickMs = 5;
constexpr int64_t kEchoMs = 300;  // of one signal

}  // namespace

JobDriver::JobDriver(CoordinatorOptions options, double join_timeout_s, ServedData& data,
                     JobEffects& effects)
    : options_(std::move(options)),
      join_timeout_s_(join_timeout_s),
      data_(data),
      effects_(effects),
      coordinator_(options_),
      progress_(options_, coordinator_),
      transfer_(options_.job.progress_timeout_s),
      desk_(coordinator_.members(), options_.self.incarnation),
      tick_(kTickMs) {}

Checked JobDriver::on_message(Now now, const PeerId& peer, const Message& message) {
  if (message.header.has_status_request()) {
    return desk_.ask(now.awake_ms, peer, message.header.status_request());
  }
  return coordinator_.on_message(now.awake_ms, peer, message);
}

bool JobDriver::on_signal(Now now, int signal, const std::string& name) {
  // the same signal may come from the terminal and from a wrapper at once
  if (signal_ != 0 && now.ms - signal_ms_ > kEchoMs) return true;
  if (signal_ == 0) signal_ms_ = now.ms;
  signal_ = signal;
  fail(ErrorCode::kFailed, "[job] ended by " + name);
  return false;
}

int JobDriver::exit_code() const {
  if (signal_ != 0) return 128 + signal_;
  if (coordinator_.phase() != wire::PHASE_FAILED) return 0;
  return static_cast<int>(coordinator_.failure_code());
}

void JobDriver::on_turn(Now now) {
  exchange_with_shards(now);
  report_own(now);
  if (data_.server() != nullptr) data_.server()->offer_leases();
  if (tick_.due(now.ms)) tick(now);
  deliver(now);
}

void JobDriver::tick(Now now) {
  if (client_) coordinator_.note_transferred(client_->transferred());
  coordinator_.on_tick(now.awake_ms);
  if (coordinator_.wants_start()) start(now);
  request_snapshot(now);
  watch_transfer(now);
  say_waiting(now);
  show_moments(now, false);
  if (coordinator_.wants_summary()) summarise(now);
  tell_status(now);
}

// ---- the server in this process ----

// Passes on the updates that it has applied since the last turn, and its requests to the
// coordinator.
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
    part.set_incarnation(coordinator_.self_incarnation());
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

void JobDriver::start(Now now) {
  const Declaration& declaration = coordinator_.declaration();
  const StartPoint point = effects_.load_start(declaration);
  say_notices();
  Start start;
  if (point.weights) start = {point.weights->step, point.weights->updates, true};
  start.choices = point.choices;
  coordinator_.start(now.awake_ms, start);
  progress_.begin(now.ms);
  effects_.started(coordinator_, point);
  const wire::State state = coordinator_.state_for_self();
  effects_.connect_shards({state.data_endpoints().begin(), state.data_endpoints().end()});
  const SliceMap map(declaration.table.total, options_.job.slice_bytes, options_.servers);
  const size_t slots = state_names(server_optimizer(options_.job).kind).size();
  // last: turns use it, and what it needs, as soon as it is there
  client_ =
      std::make_unique<ShardClient>(options_.run, coordinator_.self_incarnation(), map, slots);
  if (point.weights) client_->load(point.weights, now.ms);
  effects_.show_line("training starts: " + plural(declaration.table.total, "parameter") + " in " +
                     plural(map.slices(), "slice") + ", steps " +
                     std::to_string(coordinator_.barriers().start_step) + " to " +
                     std::to_string(coordinator_.barriers().end_step) + ", strategy " +
                     options_.job.strategy.to_string());
}

bool JobDriver::on_shard_message(Now now, const Message& message) {
  return client_ && client_->on_message(message, now.ms);
}

void JobDriver::exchange_with_shards(Now now) {
  if (!client_) return;
  client_->on_tick(now.ms);
  for (const ToShard& out : client_->take_outgoing()) {
    effects_.send_to_shard(out.server, out.message);
  }
  if (auto fetched = client_->take_fetched()) take_snapshot(now, std::move(*fetched));
}

void JobDriver::request_snapshot(Now now) {
  if (!client_ || client_->busy() || writing_) return;
  const std::optional<int64_t> step = coordinator_.take_snapshot_request();
  if (!step) return;
  writing_ = true;
  snapshot_step_ = *step;
  client_->fetch(*step, *step != coordinator_.barriers().start_step, now.ms);
}

void JobDriver::note_transfer(Now now) {
  const bool gathers = client_ && client_->busy();
  if (!gathers && !writing_) return transfer_.idle();
  const std::string weights = "weights of step " + std::to_string(snapshot_step_);
  if (gathers) {
    const MemberInfo* server =
        coordinator_.members().find_rank(wire::ROLE_SERVER, client_->waiting_for());
    const std::string name = server == nullptr ? "a server" : server->name();
    const std::string what =
        name + (writing_ ? " to hand over the " + weights : " to take its weights");
    // a server that is not ready waits for pushes: that is the workers' matter
    return transfer_.running(now.awake_ms, what, client_->answers(), 0);
  }
  const auto vectors =
      static_cast<int64_t>(1 + state_names(server_optimizer(options_.job).kind).size());
  const int64_t bytes =
      coordinator_.declaration().table.total * vectors * static_cast<int64_t>(sizeof(float));
  transfer_.running(now.awake_ms, "the disk to take the " + weights, 0, bytes);
}

void JobDriver::watch_transfer(Now now) {
  note_transfer(now);
  if (coordinator_.phase() == wire::PHASE_FAILED) return;
  if (const auto notice = transfer_.take_notice(now.awake_ms)) effects_.show_line(*notice);
  if (!transfer_.overdue(now.awake_ms)) return;
  const bool server = client_->busy();
  coordinator_.fail(server ? ErrorCode::kUnreachable : ErrorCode::kIo,
                    transfer_.overdue_text(now.awake_ms));
}

void JobDriver::take_snapshot(Now now, GatheredState snapshot) {
  coordinator_.checkpoint_gathered(now.awake_ms, snapshot.step);
  if (snapshot.step == coordinator_.barriers().start_step) {
    return effects_.hash_weights(std::move(snapshot));
  }
  const Declaration& declaration = coordinator_.declaration();
  CheckpointState state;
  state.step = snapshot.step;
  state.updates = snapshot.updates;
  state.total_steps = coordinator_.total_steps();
  state.job_ini = to_ini(options_.job);
  state.data_digest = declaration.data_digest;
  state.numerics = declaration.numerics;
  state.choices = declaration.choices;
  // the summary tells that one alone
  const bool last = state.step == coordinator_.barriers().end_step;
  effects_.write_checkpoint(std::move(snapshot), std::move(state), last);
}

void JobDriver::on_written(Now now, const Written& written) {
  writing_ = false;
  if (written.error) std::rethrow_exception(written.error);
  progress_.note_hash(written.step, written.weights_sha256);
  coordinator_.checkpoint_done(now.awake_ms, written.step);
}

// ---- what people see ----

void JobDriver::say_waiting(Now now) {
  if (!began_ms_) {
    began_ms_ = now.ms;
    line_.restart(now.ms);
  }
  const std::string waiting = coordinator_.waiting_for();
  if (waiting.empty()) return;
  if (now.ms - *began_ms_ > static_cast<int64_t>(join_timeout_s_ * 1000)) {
    coordinator_.fail(ErrorCode::kUnreachable,
                      "[join] not everybody came within --join-timeout: " + waiting);
  }
  if (line_.due(now.ms)) effects_.show_line(waiting);
}

void JobDriver::show_moments(Now now, bool last) {
  const wire::Phase phase = coordinator_.phase();
  if (phase != wire::PHASE_TRAINING && phase != wire::PHASE_FINISHING) return;
  for (const Moment& moment : progress_.moments(now.ms, data_, last)) {
    effects_.show_moment(moment);
  }
}

void JobDriver::summarise(Now now) {
  show_moments(now, true);
  effects_.write_summary(coordinator_, progress_.summary(data_.stats()));
  coordinator_.finish();
}

void JobDriver::tell_status(Now now) {
  if (desk_.due(now.awake_ms, coordinator_.phase())) {
    const TrainingProgress* progress = coordinator_.started() ? &coordinator_.training() : nullptr;
    const wire::Stats own = data_.stats();
    desk_.update(now.awake_ms, progress, own, progress_.facts(now.ms, own));
  }
  if (const auto text = desk_.take_file()) effects_.show_members(*text);
  for (const Outgoing& out : desk_.take_answers(now.awake_ms, now.utc_ms)) {
    effects_.send(out.to, out.message);
  }
}

void JobDriver::say_notices() {
  for (const std::string& notice : coordinator_.take_notices()) effects_.show_line(notice);
}

// ---- delivery ----

// Puts on their way what the state machines have to say.
void JobDriver::deliver(Now now) {
  if (deliver_outgoing(now)) {
    pass_norms(now);
    deliver_outgoing(now);
  }
  // the first weights are made: that is no training
  if (data_.server() != nullptr) progress_.training_began(now.ms);
  progress_.note_barriers(now.ms);
  say_notices();
}

// True: the server in this process has been told of its pushes, and may wait for a norm now. With
// the next turn's poll in between, each step would take that long.
bool JobDriver::deliver_outgoing(Now now) {
  bool chosen = false;
  for (const Outgoing& out : coordinator_.take_outgoing()) {
    if (out.to.empty()) {
      chosen = deliver_here(out.message.header) || chosen;
    } else if (!effects_.send(out.to, out.message)) {
      coordinator_.on_gone(now.awake_ms, out.to);
    }
  }
  return chosen;
}

bool JobDriver::deliver_here(const wire::Header& header) {
  if (header.has_state()) {
    data_.on_state({options_.job, options_.run, coordinator_.self_incarnation(), header.state()},
                   &coordinator_);
  }
  data_.on_answer(header);
  return header.has_chosen() && data_.server() != nullptr;
}

}  // namespace pushpull
