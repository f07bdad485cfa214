#include "worker/compute/compute.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "common/base/error.h"
#include "common/job/job.h"

namespace pushpull {

Compute::Compute(const Job& job, const Dataset& dataset, Model& model, const SliceMap& map,
                 std::function<bool()> over, PushedMemory memory, StageExchange* exchange)
    : model_(model),
      map_(map),
      whole_(model.table(), {0, model.table().total}, job.optimizer),
      batches_(job, dataset, std::move(over)),
      source_(make_gradient_source(job, model, map, batches_, std::move(memory), exchange)),
      exchange_(exchange) {
  if (exchange != nullptr) norm_.emplace(*model.group_stage(), map_, whole_, *exchange);
}

void Compute::set_rank(int rank) { batches_.set_rank(rank); }

void Compute::begin(int64_t step, std::vector<Range> nodes, std::span<const float> weights) {
  PP_ASSERT(!nodes.empty());
  task_ = {step, std::move(nodes)};
  next_ = 0;
  weights_ = weights;
  stage_weights_ = {};
  hinted_ = {};
  batches_.loader().announce(step, task_.nodes);
}

void Compute::begin(int64_t step, std::vector<Range> nodes,
                    std::span<const std::vector<float>> weights) {
  begin(step, std::move(nodes), std::span<const float>(weights.front()));
  stage_weights_ = weights;
}

void Compute::hint(int64_t step, std::vector<Range> nodes) {
  Loader& loader = batches_.loader();
  hinted_ = {step, std::move(nodes)};
  loader.announce(step, hinted_.nodes);
  const int64_t first = hinted_.nodes.front().lo;
  const int64_t ahead = std::min<int64_t>(hinted_.nodes.back().hi - first, Loader::kMaxHints / 2);
  for (int64_t i = 0; i < ahead; ++i) loader.hint(step, first + i);
}

bool Compute::node(const GradientSum::SliceReady& ready, std::vector<float>& losses,
                   const WeightsNeeded& needed) {
  PP_ASSERT(next_ < task_.nodes.size());
  Straggling& straggling = batches_.straggling();
  const int64_t step = task_.step;
  const GradientSum::SliceReady checked = [&](int slice, Payload part) {
    check_finite(step, slice, part);
    straggling.lag();
    ready(slice, std::move(part));
    straggling.resume();
  };
  // waiting for weights does not count as computing
  const WeightsNeeded tensor_needed = [&](size_t tensor) {
    straggling.lag();
    needed(tensor);
    straggling.resume();
  };
  const WeightsNeeded none;
  const Range range = task_.nodes[next_++];
  const Task& then = next_ < task_.nodes.size() ? task_ : hinted_;
  const size_t index = next_ < task_.nodes.size() ? next_ : 0;
  const NodeWork work{step,
                      range,
                      task_.nodes.front().lo,
                      weights_,
                      stage_weights_,
                      then.step,
                      then.nodes.empty() ? Range{} : then.nodes[index],
                      checked,
                      needed ? tensor_needed : none};
  straggling.resume();
  bool whole = false;
  try {
    whole = source_->node(work, losses);
  } catch (...) {
    task_ = {};
    source_->abandon();
    throw;
  }
  straggling.lag();
  if (!whole) task_ = {};
  return whole;
}

double Compute::squares(std::span<const float> sum, int64_t step, Range micro_batches) {
  PP_ASSERT(std::ssize(sum) == whole_.size());
  const auto divisor = static_cast<double>(micro_batches.size());
  return norm_ ? norm_->squares(step, micro_batches.lo, sum.data(), divisor)
               : whole_.all_squares(sum.data(), divisor);
}

void Compute::share_weights(int64_t step, Range micro_batches, float* weights) {
  if (exchange_ == nullptr) return;
  const GroupStage& group = *model_.group_stage();
  if (!shared_) {
    shared_.emplace(stage_parts(model_.table(), map_, group.tensors_read(), group.stage()),
                    *exchange_);
  }
  shared_->share(step, micro_batches.lo, weights);
}

void Compute::check_finite(int64_t step, int slice, const Payload& part) const {
  if (source_->finite(slice, part)) return;
  const int64_t first = map_.elements(slice).lo;
  const Payload here = source_->on_host(part);
  int64_t i = 0;
  while (std::isfinite(here.floats()[i])) ++i;
  const auto next =
      std::ranges::upper_bound(model_.table().tensors, first + i, {}, &TensorInfo::offset);
  const TensorInfo& found = *(next - 1);
  const std::string what = found.rule == UpdateRule::kAverage ? "batch statistic" : "gradient";
  throw Error(ErrorCode::kNotFinite, "[train] the " + what + " of " + batches_.where(step) +
                                         " is not finite in tensor " + found.name +
                                         batches_.advice());
}

}  // namespace pushpull
