// The parts that a rule of aggregation is made from, and the form of its answers. Plain data; one
// thread.
#pragma once

#include <cstdint>
#include <functional>

#include "common/base/parallel.h"
#include "common/job/job.h"
#include "common/net/message.h"
#include "ps/aggregation/barrier_gate.h"
#include "ps/aggregation/commit.h"
#include "ps/engine/shard.h"

namespace pushpull {

// Everything that a rule works on. References are borrowed and outlive the rule.
struct AggregationSetup {
  const Job& job;
  Shard& shard;
  BarrierGate& gate;
  Parallel& parallel;  // who updates weights
  TrainingObserver& observer;
  // Told of each push that has moved the weights, in order; empty: the run is not recorded.
  std::function<void(wire::Applied)> record = {};
  uint64_t incarnation = 0;  // of this server
  int rank = 0;              // of this server
  int servers = 1;
  int shares = 1;           // that a step is cut into
  int64_t total_steps = 0;  // schedule horizon
  int64_t updates = 0;      // that the loaded state has had
};

// One slice's answer to a pull.
struct SliceAnswer {
  Payload weights;
  int64_t version = 0;
  bool evaluated = false;   // its bits are those that an evaluation reads: it is sent as it is
  bool at_barrier = false;  // async, ssp, backup: the weights that were kept at the pull's barrier
};

}  // namespace pushpull
