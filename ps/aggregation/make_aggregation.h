// Maps each strategy to the rule that runs it on the servers; the only place that does. Any thread.
#pragma once

#include <memory>

#include "common/update/optimizer_options.h"
#include "ps/aggregation/aggregation.h"

namespace pushpull {

struct Job;

// Makes the rule for setup.job's strategy.
std::unique_ptr<Aggregation> make_aggregation(AggregationSetup setup);

// Returns the update rule of the servers: the job's own, or the outer optimizer of local:H, under
// which workers apply the job's own. Checkpoints hold its state vectors.
OptimizerOptions server_optimizer(const Job& job);

}  // namespace pushpull
