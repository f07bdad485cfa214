// The parts that an aggregation rule is made from, and the form of its answers. Plain data. Not
// thread-safe.
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

// The inputs of a rule. References are borrowed and outlive it.
struct AggregationSetup {
  const Job& job;
  Shard& shard;
  BarrierGate& gate;
  Parallel& parallel;  // threads for updates
  TrainingObserver& observer;
  // Called for each push that has changed the weights, in order; empty if the run is not recorded.
  std::function<void(wire::Applied)> record = {};
  uint64_t incarnation = 0;  // of this server
  int rank = 0;              // of this server
  int servers = 1;
  int shares = 1;           // shares per step
  int64_t total_steps = 0;  // schedule horizon
  int64_t updates = 0;      // updates contained in the loaded state
};

// One slice's answer to a pull.
struct SliceAnswer {
  Payload weights;
  int64_t version = 0;
  bool evaluated = false;   // an evaluation reads these bits: sent without a lossy codec
  bool at_barrier = false;  // async, ssp, backup: the weights kept at the pull's barrier
};

}  // namespace pushpull
