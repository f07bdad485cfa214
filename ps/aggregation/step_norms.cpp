#include "ps/aggregation/step_norms.h"

#include "common/update/norm.h"
#include "ps/engine/shard.h"

namespace pushpull {

void StepNorms::start(int64_t step, Shard& shard, std::span<const SliceUpdate> updates,
                      int64_t leaves, double divisor, Parallel& parallel) {
  waiting_.emplace();
  waiting_->set_incarnation(incarnation_);
  waiting_->set_step(step);
  for (const NormPart& part : shard.norms(updates, leaves, divisor, parallel)) {
    wire::NormNode* node = waiting_->add_nodes();
    node->set_lo(part.blocks.lo);
    node->set_hi(part.blocks.hi);
    node->set_squares(part.squares);
  }
}

std::optional<double> StepNorms::take(const wire::NormTotal& total, double clip_norm) {
  if (!waiting_ || waiting_->step() != total.step()) return std::nullopt;
  waiting_.reset();
  return clip_factor(total.norm(), clip_norm);
}

}  // namespace pushpull
