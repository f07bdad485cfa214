// Maps each strategy to the rule that runs it on the servers; the only place that does.
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/job/job.h"
#include "ps/server/aggregation.h"
#include "ps/server/buffered.h"
#include "ps/server/chosen_set.h"
#include "ps/server/single_pushes.h"
#include "ps/server/stored_weights.h"
#include "ps/server/whole_steps.h"

namespace pushpull {

std::unique_ptr<Aggregation> make_aggregation(AggregationSetup setup) {
  const Strategy& strategy = setup.job.strategy;
  switch (strategy.kind) {
    case StrategyKind::kSync:
      return std::make_unique<WholeSteps>(std::move(setup), StepSumKind::kGradients);
    case StrategyKind::kLocal:
      return std::make_unique<WholeSteps>(std::move(setup), StepSumKind::kChanges);
    case StrategyKind::kBackup:
      return std::make_unique<ChosenSet>(std::move(setup));
    case StrategyKind::kAsync:
      return std::make_unique<SinglePushes>(std::move(setup), std::nullopt);
    case StrategyKind::kBuffered:
      return std::make_unique<BufferedPushes>(std::move(setup), strategy.buffer);
    case StrategyKind::kSsp:
      return std::make_unique<SinglePushes>(std::move(setup), strategy.staleness);
    case StrategyKind::kAllReduce:
      return std::make_unique<StoredWeights>(std::move(setup));
  }
  PP_ASSERT(!"every strategy has a rule");
  return nullptr;
}

OptimizerOptions server_optimizer(const Job& job) {
  if (!job.strategy.traits().outer_optimizer) return job.optimizer;
  OptimizerOptions outer;
  outer.kind = job.outer_momentum > 0 ? OptimizerKind::kNesterov : OptimizerKind::kSgd;
  outer.momentum = job.outer_momentum;
  outer.ema = job.optimizer.ema;
  return outer;
}

}  // namespace pushpull
