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

}  // namespace

LocalSteps::LocalSteps(const Job& job, const TensorTable& table, const SliceMap& map,
                       int64_t total_steps, const LocalMemory& memory)
    : job_(job),
      map_(map),
      total_steps_(total_steps),
      whole_(table, {0, table.total}, job.optimizer),
      weights_(memory.weights(static_cast<size_t>(table.total))),
      pool_(static_cast<size_t>(table.total), memory.pushed) {}

void LocalSteps::begin(Range share, std::span<const float> weights) {
  PP_ASSERT(std::ssize(weights) == whole_.size());
  share_ = share;
  std::copy(weights.begin(), weights.end(), weights_.get());
  State& state = states_[share];
  if (!state.vectors.empty()) return;
  state.vectors.assign(whole_.state_vectors(), std::vector<float>(weights.size()));
}

double LocalSteps::clip_of(std::span<const float> sum, double divisor) const {
  if (job_.clip_norm <= 0) return 1.0;
  return clip_factor(std::sqrt(whole_.all_squares(sum.data(), divisor)), job_.clip_norm);
}

void LocalSteps::step(int64_t step, std::span<const float> sum) {
  PP_ASSERT(std::ssize(sum) == whole_.size());
  State& state = states_.at(share_);
  UpdateInfo info;
  info.learning_rate = learning_rate(job_.schedule, step, total_steps_);
  info.divisor = static_cast<double>(share_.size());
  info.clip = clip_of(sum, info.divisor);
  std::array<float*, 2> vectors{};
  for (size_t i = 0; i < state.vectors.size(); ++i) vectors[i] = state.vectors[i].data();
  whole_.apply({0, whole_.size()}, info, ++state.updates, weights_.get(), sum.data(),
               std::span(vectors.data(), state.vectors.size()), weights_.get());
}

void LocalSteps::finish(std::span<const float> start, const SliceReady& ready) {
  const std::shared_ptr<float[]> change = pool_.get();
  weighted_change(start.data(), weights_.get(), static_cast<float>(share_.size()), whole_.size(),
                  change.get());
  for (int slice = 0; slice < map_.slices(); ++slice) {
    const Range elements = map_.elements(slice);
    const std::span<const float> part(change.get() + elements.lo,
                                      static_cast<size_t>(elements.size()));
    ready(slice, {change, std::as_bytes(part)});
  }
}

}  // namespace pushpull
