#include "worker/compute/evaluate.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/job/job.h"
#include "common/net/model_wire.h"

namespace pushpull {

Evaluator::Evaluator(const Job& job, const Dataset& dataset, Model& model)
    : dataset_(dataset),
      model_(model),
      chunk_size_(job.micro_batch),
      layout_(dataset.fields(), job.micro_batch),
      block_(layout_.words()),
      sums_(model.heads().size()) {
  PP_ASSERT(chunk_size_ > 0);
}

int64_t Evaluator::chunks() const {
  return (dataset_.size(Split::kTest) + chunk_size_ - 1) / chunk_size_;
}

int64_t Evaluator::samples(int64_t chunk) const {
  return std::min(chunk_size_, dataset_.size(Split::kTest) - chunk * chunk_size_);
}

void Evaluator::find_indices(int64_t chunk) {
  PP_ASSERT(chunk >= 0 && chunk < chunks());
  indices_.resize(static_cast<size_t>(samples(chunk)));
  std::iota(indices_.begin(), indices_.end(), chunk * chunk_size_);
}

void Evaluator::announce(int64_t chunk) {
  if (layout_.words() > 0) return;
  find_indices(chunk);
  dataset_.announce({.split = Split::kTest, .micro_batch = chunk, .indices = indices_});
}

std::span<const HeadSums> Evaluator::run(std::span<const float> weights, int64_t chunk,
                                         bool same_weights) {
  PP_ASSERT(std::ssize(weights) == model_.table().total);
  find_indices(chunk);
  // pads with zeros rather than an earlier chunk's samples, so that the bits depend on this chunk
  // alone
  if (std::ssize(indices_) < chunk_size_) std::fill(block_.begin(), block_.end(), 0.0F);
  dataset_.read({Split::kTest, 0, indices_, layout_}, block_.data());
  model_.evaluate(weights, {-1, chunk, indices_, block_, 0, same_weights}, sums_);
  return sums_;
}

EvaluationShare::EvaluationShare(Evaluator evaluator, uint64_t incarnation,
                                 std::function<bool()> over, Activity& activity, Trace* trace)
    : evaluator_(std::move(evaluator)),
      incarnation_(incarnation),
      over_(std::move(over)),
      activity_(activity),
      trace_(trace) {}

std::optional<wire::EvalResult> EvaluationShare::run(int64_t step, Range chunks,
                                                     std::span<const float> weights) {
  const bool traced = trace_ != nullptr && trace_->on();
  wire::EvalResult result;
  result.set_incarnation(incarnation_);
  result.set_step(step);
  for (int64_t chunk = chunks.lo; chunk < chunks.hi; ++chunk) evaluator_.announce(chunk);
  for (int64_t chunk = chunks.lo; chunk < chunks.hi; ++chunk) {
    if (over_()) return std::nullopt;
    const double begin_s = traced ? now_seconds() : 0.0;
    wire::ChunkResult* out = result.add_chunks();
    out->set_chunk(chunk);
    to_wire(evaluator_.run(weights, chunk, chunk > chunks.lo), out);
    activity_.add_computed(1);
    if (traced) trace_->add(Trace::kEvaluate, step, chunk, begin_s, now_seconds());
  }
  if (over_()) return std::nullopt;
  return result;
}

}  // namespace pushpull
