#include "ps/server/aggregation.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/job/job.h"
#include "common/update/norm.h"
#include "common/update/optimizer_options.h"
#include "common/update/range_update.h"
#include "ps/engine/shard.h"
#include "ps/server/barrier_gate.h"

namespace pushpull {

StepNorms::StepNorms(const Job& job, uint64_t incarnation)
    : clip_norm_(job.clip_norm),
      scales_(scales_by_tensor(job.optimizer.kind)),
      incarnation_(incarnation) {}

void StepNorms::add(Shard& shard, std::span<const SliceUpdate> updates, int64_t leaves,
                    double divisor, Parallel& parallel) {
  if (clip_norm_ == 0.0) return add_tensors(shard, updates, leaves, divisor, parallel);
  for (const NormPart& part : shard.norms(updates, leaves, divisor, parallel)) {
    wire::NormNode* node = sums_.add_nodes();
    node->set_lo(part.blocks.lo);
    node->set_hi(part.blocks.hi);
    node->set_squares(part.squares);
  }
}

void StepNorms::add_tensors(Shard& shard, std::span<const SliceUpdate> updates, int64_t leaves,
                            double divisor, Parallel& parallel) {
  sums_.set_of_tensors(true);
  UpdateInfo info;
  info.divisor = divisor;
  info.clip = clip_;
  for (const TrustPart& part : shard.trust_parts(updates, leaves, info, parallel)) {
    wire::NormNode* node = sums_.add_nodes();
    node->set_lo(part.blocks.lo);
    node->set_hi(part.blocks.hi);
    node->set_squares(part.squares.update);
    node->set_tensor(part.tensor);
    node->set_weights(part.squares.weights);
  }
}

void StepNorms::finish(int64_t step) {
  PP_ASSERT(!waiting_);
  sums_.set_incarnation(incarnation_);
  sums_.set_step(step);
  waiting_.emplace().Swap(&sums_);
}

bool StepNorms::take(const wire::NormTotal& total, Shard& shard, std::span<const SliceUpdate> all,
                     int64_t leaves, double divisor, Parallel& parallel) {
  if (!waiting_ || waiting_->step() != total.step()) return false;
  if (waiting_->of_tensors() != total.of_tensors()) return false;
  if (total.of_tensors()) {
    if (total.trust_size() != static_cast<int>(shard.tensors())) {
      throw Error(ErrorCode::kProtocol, "[norm] " + std::to_string(total.trust_size()) +
                                            " trust ratios for a model with " +
                                            std::to_string(shard.tensors()) + " tensors");
    }
    trust_.assign(total.trust().begin(), total.trust().end());
    waiting_.reset();
    return true;
  }
  waiting_.reset();
  clip_ = clip_factor(total.norm(), clip_norm_);
  if (!scales_) return true;
  add_tensors(shard, all, leaves, divisor, parallel);
  finish(total.step());
  return false;
}

void StepNorms::add_factors_to(UpdateInfo& info) const {
  info.clip = clip_;
  info.trust = trust_;
}

Aggregation::Aggregation(AggregationSetup setup)
    : setup_(std::move(setup)),
      leaves_(setup_.job.micro_batches()),
      floor_(setup_.gate.barriers().start_step),
      updates_(setup_.updates) {}

const Barriers& Aggregation::barriers() const { return setup_.gate.barriers(); }

double Aggregation::rate(int64_t step, std::optional<double> said) const {
  return learning_rate(setup_.job.schedule, step, setup_.total_steps, said);
}

// Adds a generation that a snapshot may hold.
void Aggregation::reserve(int generations) {
  const Barriers& due = barriers();
  const bool snapshots =
      due.checkpoint_every > 0 || due.copy_every > 0 || due.may_choose || due.awaits_evaluations;
  shard().reserve(generations + (snapshots ? 1 : 0));
}

Checked Aggregation::check_basis(const wire::Push& push, int64_t needed_floor) const {
  const auto& reads = push.read_versions();
  if (reads.size() != setup_.servers) {
    return refused("push-reads", "read versions of " + std::to_string(setup_.servers) + " servers",
                   std::to_string(reads.size()));
  }
  // the stage of a group may read nothing of a server: -1
  const int64_t least = setup_.job.stages > 1 ? -1 : 0;
  const auto wrong = std::find_if(reads.begin(), reads.end(), [&](int64_t v) { return v < least; });
  if (wrong != reads.end()) {
    return refused("push-reads", "a read version from " + std::to_string(least),
                   std::to_string(*wrong));
  }
  if (!setup_.gate.passed(push.step())) {
    return refused(
        "push-early",
        "no push of step " + std::to_string(push.step()) + " before barrier " +
            std::to_string(barriers().last(push.step())) + " is open",
        "one while barrier " + std::to_string(setup_.gate.newest_open()) + " is the newest");
  }
  if (floor_ < needed_floor) {
    return refused("push-early",
                   "no push of step " + std::to_string(push.step()) + " before step " +
                       std::to_string(needed_floor) + " begins",
                   "one in step " + std::to_string(floor_));
  }
  return {};
}

Checked Aggregation::check(const wire::Store& store) const {
  return refused("store-strategy", "no weights from workers, which push gradients",
                 "those of slice " + std::to_string(store.slice()));
}

const std::optional<wire::Norms>& Aggregation::waiting_norms() const {
  static const std::optional<wire::Norms> none;
  return none;
}

const std::optional<wire::Arrived>& Aggregation::waiting_arrived() const {
  static const std::optional<wire::Arrived> none;
  return none;
}

void Aggregation::record(const ReceivedPush& push, std::span<const int64_t> reads, bool more,
                         bool uncompensated) const {
  if (!setup_.record) return;
  wire::Applied applied;
  applied.set_rank(push.rank);
  applied.set_step(push.step);
  applied.set_lo(static_cast<int32_t>(push.range.lo));
  applied.set_hi(static_cast<int32_t>(push.range.hi));
  if (!push.reads_of_stages.empty()) reads = push.reads_of_stages;
  applied.mutable_read_versions()->Add(reads.begin(), reads.end());
  applied.set_uncompensated(uncompensated);
  applied.set_more(more);
  setup_.record(std::move(applied));
}

}  // namespace pushpull
