#include "ps/coordinator/transfers.h"

#include <utility>

#include "common/base/text.h"
#include "common/layout/slice_map.h"
#include "ps/aggregation/make_aggregation.h"

namespace pushpull {

Transfers::Transfers(const CoordinatorOptions& options, Progress& progress, JobEffects& effects)
    : options_(options),
      progress_(progress),
      effects_(effects),
      watch_(options.job.progress_timeout_s) {}

void Transfers::end_term() {
  client_.reset();
  writing_ = on_disk_;
}

void Transfers::on_tick(Now now, Coordinator& coordinator) {
  request_snapshot(now, coordinator);
  watch(now, coordinator);
}

// Returns the number of slices.
int64_t Transfers::begin_term(Now now, const Coordinator& coordinator, const StartPoint& point) {
  const wire::State state = coordinator.state_for_self();
  effects_.connect_shards({state.data_endpoints().begin(), state.data_endpoints().end()});
  const SliceMap map(coordinator.declaration().table.total, options_.job.slice_bytes,
                     options_.servers);
  const size_t slots = state_names(server_optimizer(options_.job).kind).size();
  // last: turns use it, and what it needs, as soon as it is there
  client_ = std::make_unique<ShardClient>(options_.run, coordinator.self_incarnation(), map, slots);
  if (point.weights) client_->load(point.weights, now.ms);
  return map.slices();
}

bool Transfers::on_message(Now now, const Message& message) {
  return client_ && client_->on_message(message, now.ms);
}

void Transfers::exchange(Now now, Coordinator& coordinator) {
  if (!client_) return;
  client_->on_tick(now.ms);
  for (const ToShard& out : client_->take_outgoing()) {
    effects_.send_to_shard(out.server, out.message);
  }
  if (auto fetched = client_->take_fetched()) take_snapshot(now, coordinator, std::move(*fetched));
}

void Transfers::request_snapshot(Now now, Coordinator& coordinator) {
  if (!client_ || client_->busy() || writing_) return;
  const std::optional<int64_t> step = coordinator.take_snapshot_request();
  if (!step) return;
  writing_ = true;
  snapshot_step_ = *step;
  snapshot_term_ = options_.term;
  const size_t vectors = 1 + state_names(server_optimizer(options_.job).kind).size();
  snapshot_bytes_ =
      coordinator.declaration().table.total * static_cast<int64_t>(vectors * sizeof(float));
  client_->fetch(*step, *step != coordinator.barriers().start_step, now.ms);
}

void Transfers::note_transfer(Now now, const Coordinator& coordinator) {
  const bool gathers = client_ && client_->busy();
  if (!gathers && !writing_) return watch_.idle();
  const std::string weights = "weights of step " + std::to_string(snapshot_step_);
  if (gathers) {
    const MemberInfo* server =
        coordinator.members().find_rank(wire::ROLE_SERVER, client_->waiting_for());
    const std::string name = server == nullptr ? "a server" : server->name();
    const std::string what =
        name + (writing_ ? " to hand over the " + weights : " to take its weights");
    // a server that is not ready waits for pushes: that is the workers' matter
    return watch_.running(now.awake_ms, what, client_->answers(), 0);
  }
  watch_.running(now.awake_ms, "the disk to take the " + weights, 0, snapshot_bytes_);
}

void Transfers::watch(Now now, Coordinator& coordinator) {
  note_transfer(now, coordinator);
  if (coordinator.phase() == wire::PHASE_FAILED) return;
  if (const auto notice = watch_.take_notice(now.awake_ms)) effects_.show_line(*notice);
  if (!watch_.overdue(now.awake_ms)) return;
  const bool server = client_ && client_->busy();
  coordinator.fail(server ? ErrorCode::kUnreachable : ErrorCode::kIo,
                   watch_.overdue_text(now.awake_ms));
}

void Transfers::take_snapshot(Now now, Coordinator& coordinator, GatheredState snapshot) {
  coordinator.checkpoint_gathered(now.awake_ms, snapshot.step);
  on_disk_ = true;
  if (snapshot.step == coordinator.barriers().start_step) {
    return effects_.hash_weights(std::move(snapshot));
  }
  const Declaration& declaration = coordinator.declaration();
  CheckpointState state;
  state.step = snapshot.step;
  state.updates = snapshot.updates;
  state.total_steps = coordinator.total_steps();
  state.job_ini = to_ini(options_.job);
  state.data_digest = declaration.data_digest;
  state.numerics = declaration.numerics;
  state.choices = declaration.choices;
  state.run = hex_text(options_.first_run);
  state.initial_weights_sha256 = progress_.initial_weights_sha256();
  if (const RunCounts* counts = coordinator.training().counts_at(snapshot.step)) {
    state.counts = *counts;
  }
  // the summary tells that one alone
  const bool last = state.step == coordinator.barriers().end_step;
  effects_.write_checkpoint(std::move(snapshot), std::move(state), last);
}

void Transfers::on_written(Now now, Coordinator& coordinator, const Written& written) {
  writing_ = false;
  on_disk_ = false;
  if (snapshot_term_ != options_.term) return;  // the new term writes its own
  if (written.error) std::rethrow_exception(written.error);
  progress_.note_hash(written.step, written.weights_sha256);
  coordinator.checkpoint_done(now.awake_ms, written.step);
}

}  // namespace pushpull
