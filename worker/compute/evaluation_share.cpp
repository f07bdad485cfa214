#include "worker/compute/evaluation_share.h"

#include <utility>

#include "common/base/process.h"
#include "common/net/model_wire.h"

namespace pushpull {

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
