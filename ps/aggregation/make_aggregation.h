// The one place that knows which rule runs a strategy on the servers. Any thread.
#pragma once

#include <memory>

#include "common/update/optimizer.h"
#include "ps/aggregation/aggregation.h"

namespace pushpull {

// The rule of setup.job's strategy.
std::unique_ptr<Aggregation> make_aggregation(AggregationSetup setup);

// The update rule on the servers: the job's, or the outer optimizer of local:H, whose workers apply
// the job's own. Its state vectors are those that checkpoints hold.
OptimizerOptions server_optimizer(const Job& job);

}  // namespace pushpull
