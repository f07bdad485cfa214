#include "ps/aggregation/step_norms.h"

#include "common/base/error.h"
#include "common/update/norm.h"
#include "ps/engine/shard.h"

namespace pushpull {

void StepNorms::add(Shard& shard, std::span<const SliceUpdate> updates, int64_t leaves,
                    double divisor, Parallel& parallel) {
  for (const NormPart& part : shard.norms(updates, leaves, divisor, parallel)) {
    wire::NormNode* node = sums_.add_nodes();
    node->set_lo(part.blocks.lo);
    node->set_hi(part.blocks.hi);
    node->set_squares(part.squares);
  }
}

void StepNorms::finish(int64_t step) {
  PP_ASSERT(!waiting_);
  sums_.set_incarnation(incarnation_);
  sums_.set_step(step);
  waiting_.emplace().Swap(&sums_);
}

std::optional<double> StepNorms::take(const wire::NormTotal& total, double clip_norm) {
  if (!waiting_ || waiting_->step() != total.step()) return std::nullopt;
  waiting_.reset();
  return clip_factor(total.norm(), clip_norm);
}

}  // namespace pushpull
