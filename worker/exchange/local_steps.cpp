#include "worker/exchange/local_steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "common/base/error.h"
#include "common/base/simd.h"
#include "common/job/job.h"
#include "common/update/norm.h"
#include "common/update/optimizer.h"
#include "common/update/optimizer_options.h"

namespace pushpull {

namespace {

PUSHPULL_SIMD void weighted_change(const float* start, const float* end, float weight, int64_t n,
                                   float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = weight * (start[i] - end[i]);
}

// Servers average the weights.
OptimizerOptions without_average(OptimizerOptions options) {
  options.ema = 0.0;
  return options;
}

}  // namespace

LocalSteps::LocalSteps(const Job& job, const TensorTable& table, const SliceMap& map,
                       int64_t total_steps, const LocalMemory& memory, LocalPart part)
    : job_(job),
      map_(map),
      total_steps_(total_steps),
      part_(std::move(part)),
      owned_(map.elements_of_stage(part_.stage)),
      table_(table),
      update_(table, owned_, without_average(job.optimizer)),
      weights_(memory.weights(static_cast<size_t>(map.total()))),
      pool_(static_cast<size_t>(std::max<int64_t>(1, owned_.size())), memory.pushed) {}

void LocalSteps::begin(Range share, std::span<const float> weights) {
  PP_ASSERT(std::ssize(weights) == map_.total());
  share_ = share;
  const auto copy = [&](Range of) {
    std::copy_n(weights.data() + of.lo, of.size(), weights_.get() + of.lo);
  };
  copy(owned_);
  for (const Range& range : part_.reads) copy(range);
  State& state = states_[share];
  if (!state.vectors.empty()) return;
  state.vectors.assign(update_.state_vectors(),
                       std::vector<float>(static_cast<size_t>(owned_.size())));
}

void LocalSteps::step(int64_t step, std::span<const float> sum, double squares,
                      std::optional<double> rate) {
  PP_ASSERT(std::ssize(sum) == map_.total());
  State& state = states_.at(share_);
  UpdateInfo info;
  info.learning_rate = learning_rate(job_.schedule, step, total_steps_, rate);
  info.divisor = static_cast<double>(share_.size());
  if (job_.clip_norm > 0) info.clip = clip_factor(std::sqrt(squares), job_.clip_norm);
  std::array<float*, kMaxStateVectors> vectors{};
  for (size_t i = 0; i < state.vectors.size(); ++i) vectors[i] = state.vectors[i].data();
  float* const weights = weights_.get() + owned_.lo;
  const std::span<float* const> slots(vectors.data(), state.vectors.size());
  ++state.updates;
  const std::vector<double> trust =
      trust_of_update(table_, job_.optimizer, update_, info, state.updates, weights,
                      sum.data() + owned_.lo, {vectors.data(), state.vectors.size()});
  info.trust = trust;
  update_.apply({0, owned_.size()}, info, state.updates, weights, sum.data() + owned_.lo, slots,
                weights);
}

void LocalSteps::finish(std::span<const float> start, const SliceReady& ready) {
  const std::shared_ptr<float[]> change = pool_.get();
  weighted_change(start.data() + owned_.lo, weights_.get() + owned_.lo,
                  static_cast<float>(share_.size()), owned_.size(), change.get());
  const Range slices = map_.slices_of_stage(part_.stage);
  for (auto slice = static_cast<int>(slices.lo); slice < slices.hi; ++slice) {
    const Range elements = map_.elements(slice);
    const std::span<const float> part(change.get() + (elements.lo - owned_.lo),
                                      static_cast<size_t>(elements.size()));
    ready(slice, {change, std::as_bytes(part)});
  }
}

}  // namespace pushpull
