#include "ps/run/transfers.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/host/shortage.h"
#include "common/job/job.h"
#include "ps/run/stop_request.h"
#include "ps/run/training_run.h"
#include "ps/server/aggregation.h"

namespace pushpull {

namespace {

constexpr double kAheadMs = 100;  // several round trips of control messages

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    const std::optional<Error> shortage = shortage_of(e);
    return shortage ? shortage->what() : e.what();
  }
}

}  // namespace

Transfers::Transfers(const CoordinatorOptions& options, RunSummary& summary, JobEffects& effects)
    : options_(options),
      summary_(summary),
      effects_(effects),
      watch_(options.job.progress_timeout_s) {}

int64_t Transfers::begin_term(Now now, TrainingRun& run, const Membership& members,
                              const Declaration& declaration, const StartPoint& point) {
  effects_.connect_shards(run.server_ports());
  const int64_t total = declaration.table.total;
  const SliceMap map(declaration.table, options_.job.slice_bytes, options_.servers);
  term_.emplace(Term{run, members, declaration, map, client(map)});
  if (point.weights) term_->client.load(point.weights, now.ms);
  whole_bytes_ = total * static_cast<int64_t>((1 + state_vectors()) * sizeof(float));
  end_failure_.clear();
  interval_.begin(now.ms, run.barriers().start_step);
  return map.slices();
}

std::optional<int64_t> Transfers::saved_step() const {
  return term_ ? term_->run.snapshots().saved_step() : saved_step_;
}

void Transfers::end_term() {
  saved_step_ = saved_step();
  term_.reset();
}

std::optional<Error> Transfers::on_tick(Now now, wire::Phase phase, bool server_lost) {
  if (term_ && phase == wire::PHASE_TRAINING) {
    restore(now);
    if (options_.job.checkpoint_auto && interval_.due(now.ms) && !term_->run.snapshots().busy())
      add_checkpoint(now);
  }
  use_disk();
  request_snapshot(now);
  note_transfer(now, server_lost);
  return watch(now, phase);
}

// Returns the number of the servers' state vectors.
size_t Transfers::state_vectors() const {
  return state_names(server_optimizer(options_.job)).size();
}

ShardClient Transfers::client(const SliceMap& map) const {
  return {options_.term_id, options_.self.incarnation, map, state_vectors()};
}

bool Transfers::on_message(Now now, const Message& message) {
  if (!term_) return false;
  const bool restores = term_->restoring && term_->restoring->on_message(message, now.ms);
  return term_->client.on_message(message, now.ms) || restores;
}

void Transfers::exchange(Now now) {
  if (!term_) return;
  for (ShardClient* const client : {&term_->client, term_->restoring.get()}) {
    if (client == nullptr) continue;
    client->on_tick(now.ms);
    for (const ToShard& out : client->take_outgoing()) {
      effects_.send_to_shard(out.server, out.message);
    }
  }
  term_->run.note_transferred(term_->client.transferred());
  if (auto fetched = term_->client.take_fetched()) take_snapshot(std::move(*fetched));
}

// Chooses a step far enough ahead for all members to know of it in time.
std::optional<int64_t> Transfers::add_checkpoint(Now now) {
  const int64_t step = term_->run.floor();
  interval_.reach(now.ms, step);
  const std::optional<int64_t> chosen = term_->run.choose_checkpoint(interval_.steps_in(kAheadMs));
  if (chosen) interval_.chosen(now.ms, step);
  return chosen;
}

void Transfers::request_snapshot(Now now) {
  if (!term_ || term_->client.busy()) return;
  const auto request = term_->run.take_snapshot_request();
  if (!request) return;
  const auto [step, extent] = *request;
  if (extent == BarrierSnapshots::Extent::kCopy) {
    const std::vector<int> slices = slices_of_others();
    if (slices.empty()) return term_->run.snapshot_gathered({.step = step});
    return term_->client.fetch(step, slices, now.ms);
  }
  if (term_->run.snapshots().is_written(step)) interval_.gathering(now.ms, step);
  term_->client.fetch(step, extent == BarrierSnapshots::Extent::kWhole, now.ms);
}

// ---- a replacement server ----

std::vector<int> Transfers::slices_of_others() const {
  std::vector<int> out;
  for (int slice = 0; slice < term_->map.slices(); ++slice) {
    if (term_->map.server_of(slice) != 0) out.push_back(slice);
  }
  return out;
}

// Shares the payloads with the checkpoint writer.
void Transfers::keep_copy(const GatheredState& snapshot) {
  const bool is_start = snapshot.step == term_->run.barriers().start_step;
  if (options_.job.copy_distance() == 0 || is_start) return;
  auto copy = std::make_shared<GatheredState>();
  copy->step = snapshot.step;
  copy->updates = snapshot.updates;
  copy->slices.resize(snapshot.slices.size());
  for (const int slice : slices_of_others()) {
    copy->slices[static_cast<size_t>(slice)] = snapshot.slices[static_cast<size_t>(slice)];
  }
  term_->copy = std::move(copy);
  term_->run.copied(snapshot.step, snapshot.updates);
}

// Loads the copy into one replacement server at a time.
void Transfers::restore(Now now) {
  if (term_->restoring) return end_restore();
  const std::optional<int> rank = term_->run.take_joined_server();
  if (!rank) return;
  term_->restored_server = term_->members.find_rank(wire::ROLE_SERVER, *rank)->incarnation;
  effects_.connect_shards(term_->run.server_ports());
  // A complete copy proves that each server has reached its step: workers then drop earlier pushes.
  term_->client.fetch_again(now.ms);
  term_->restoring = std::make_unique<ShardClient>(client(term_->map));
  term_->restoring->load(term_->copy, term_->map.slices_of(*rank), now.ms);
}

void Transfers::end_restore() {
  const MemberInfo* const server = term_->members.find(term_->restored_server);
  if (server == nullptr) return term_->restoring.reset();  // lost again
  if (term_->restoring->busy()) return;
  term_->restoring.reset();
  term_->run.server_loaded(term_->restored_server);
  effects_.show_line(server->name() + " has the weights of step " +
                     std::to_string(term_->copy->step) + "; workers resend it their later pushes");
}

// ---- how long it takes ----

// The disk comes first: during a write, servers hand over copies at most.
void Transfers::note_transfer(Now now, bool server_lost) {
  if (disk_step_) {
    const std::string what = "the disk to write the weights of step " + std::to_string(*disk_step_);
    return watch_.running(now.awake_ms, what, 0, whole_bytes_);
  }
  // A lost server answers no more; the next term has a deadline of its own.
  if (!term_ || !term_->client.busy() || server_lost) return watch_.idle();
  const MemberInfo* server =
      term_->members.find_rank(wire::ROLE_SERVER, term_->client.waiting_for());
  const std::optional<int64_t> step = term_->client.fetched_step();
  const std::string what = (server == nullptr ? "a server" : server->name()) +
                           (step ? " to hand over the weights of step " + std::to_string(*step)
                                 : " to take its weights");
  // A server that is not ready waits for pushes, which is not its fault.
  watch_.running(now.awake_ms, what, term_->client.answers(), 0);
}

std::optional<Error> Transfers::watch(Now now, wire::Phase phase) {
  if (phase == wire::PHASE_FAILED) return std::nullopt;
  if (const auto notice = watch_.take_notice(now.awake_ms)) effects_.show_line(*notice);
  if (!watch_.overdue(now.awake_ms)) return std::nullopt;
  return Error(disk_step_ ? ErrorCode::kIo : ErrorCode::kUnreachable,
               watch_.overdue_text(now.awake_ms));
}

// ---- the disk ----

void Transfers::take_snapshot(GatheredState snapshot) {
  keep_copy(snapshot);
  term_->run.snapshot_gathered(std::move(snapshot));
  use_disk();
}

void Transfers::use_disk() {
  if (!term_) return;
  std::optional<BarrierSnapshots::Task> task = term_->run.take_task();
  if (!task) return;
  disk_step_ = task->snapshot.step;
  if (!task->kind) return effects_.hash_weights(std::move(task->snapshot));
  write(std::move(task->snapshot), *task->kind);
}

void Transfers::write(GatheredState snapshot, CheckpointKind kind) {
  const TrainingRun& run = term_->run;
  CheckpointState state;
  state.step = snapshot.step;
  state.updates = snapshot.updates;
  state.total_steps = run.total_steps();
  state.job_ini = to_ini(options_.job);
  state.data_digest = term_->declaration.data_digest;
  state.numerics = term_->declaration.numerics;
  state.choices = term_->declaration.choices;
  state.tokenizer = term_->declaration.tokenizer;
  state.run = hex_text(options_.run_id);
  state.initial_weights_sha256 = summary_.initial_weights_sha256();
  if (const RunCounts* counts = run.committed().counts_at(snapshot.step)) state.counts = *counts;
  state.evaluation = run.followed().record_at(state.step);
  effects_.write_checkpoint(std::move(snapshot), std::move(state), kind);
}

bool Transfers::on_written(Now now, const Written& written) {
  const bool failed = may_fail(written);
  if (failed) report_failure(written);
  disk_step_.reset();
  if (!term_) return !failed;  // a new term writes its own checkpoints
  const bool over = term_->run.snapshot_written(written.error == nullptr);
  if (written.error && !failed) rethrow(written);
  if (!over) return !failed;
  summary_.note_hash(term_->run.barriers(), written.step, written.weights_sha256);
  measure(now, written.step);
  return !failed;
}

void Transfers::measure(Now now, int64_t step) {
  const Barriers& barriers = term_->run.barriers();
  if (!options_.job.checkpoint_auto || step == barriers.start_step) return;
  interval_.done(now.ms, term_->run.floor());
  if (step < barriers.end_step) effects_.show_line(interval_.line());
}

bool Transfers::is_of_stop(const Written& written) const {
  return written.kind == CheckpointKind::kLast && term_ &&
         term_->run.barriers().stops_at(written.step);
}

// Throws the error that ends the job. That of a run that stops says what is lost.
void Transfers::rethrow(const Written& written) const {
  if (!is_of_stop(written)) std::rethrow_exception(written.error);
  throw Error(ErrorCode::kIo, text_of(written.error) +
                                  "; the run was to stop with this checkpoint: " +
                                  RunSaved{written.step, saved_step()}.loss());
}

// Returns true if a file could not be written and the job continues in that case.
bool Transfers::may_fail(const Written& written) const {
  const bool continues = options_.job.on_checkpoint_failure == OnCheckpointFailure::kContinue;
  if (!written.error || !continues || is_of_stop(written)) return false;
  try {
    std::rethrow_exception(written.error);
  } catch (const Error& e) {
    return e.code() == ErrorCode::kIo;
  } catch (...) {
    return false;
  }
}

void Transfers::report_failure(const Written& written) {
  const std::string why = text_of(written.error);
  const std::string step = std::to_string(written.step);
  if (written.kind == CheckpointKind::kBest) {
    return effects_.show_line(why + "; the best checkpoint, that of step " + step +
                              ", is lost, training goes on (on-checkpoint-failure = continue)");
  }
  const bool end = term_ && written.step == term_->run.barriers().end_step;
  const std::optional<int64_t> saved = saved_step();
  const std::string newest =
      saved ? "the newest checkpoint on disk is that of step " + std::to_string(*saved)
            : "there is no checkpoint of this run on disk";
  const std::string lost = why + "; the checkpoint of step " + step + " is lost, ";
  if (end) end_failure_ = lost + "the last one: " + newest + "; make room, and resume from it";
  effects_.show_line(end ? lost + "summary.json is still written"
                         : lost + "training goes on (on-checkpoint-failure = continue): " + newest);
}

}  // namespace pushpull
