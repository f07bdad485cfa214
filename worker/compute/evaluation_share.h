// A worker's share of an evaluation: evaluates chunks of the test split and fills in the message
// that reports them. Used by every trainer, on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "worker/compute/evaluate.h"
#include "worker/trace/activity.h"
#include "worker/trace/trace.h"

namespace pushpull {

class EvaluationShare {
 public:
  // incarnation: of this worker. over: returns true once the job is over; called before each chunk.
  // activity: counts the chunks. trace: gets an event per chunk, unless null. Both are borrowed.
  EvaluationShare(Evaluator evaluator, uint64_t incarnation, std::function<bool()> over,
                  Activity& activity, Trace* trace = nullptr);

  // Returns the number of chunks of the whole test split.
  int64_t chunks() const { return evaluator_.chunks(); }
  // Evaluates the weights of barrier `step` on these chunks. Returns nothing if the job ended
  // first.
  std::optional<wire::EvalResult> run(int64_t step, Range chunks, std::span<const float> weights);

 private:
  Evaluator evaluator_;
  const uint64_t incarnation_;
  const std::function<bool()> over_;
  Activity& activity_;
  Trace* const trace_;
};

}  // namespace pushpull
