// Barriers at one server: which is the newest one that is open, and the snapshots that are kept for
// those who fetch them. A snapshot refers to the shard's memory, it copies nothing. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "common/job/barriers.h"
#include "common/net/message.h"
#include "ps/aggregation/commit.h"
#include "ps/engine/shard.h"

namespace pushpull {

struct Snapshot {
  int64_t step = -1;  // -1: none
  int64_t updates = 0;
  std::map<int, Payload> weights;             // by slice
  std::map<int, std::vector<Payload>> state;  // by slice: the optimizer's vectors
};

class BarrierGate {
 public:
  // shard, observer: borrowed.
  BarrierGate(const Barriers& barriers, Shard& shard, TrainingObserver& observer);

  const Barriers& barriers() const { return barriers_; }
  // The newest barrier whose snapshot is taken.
  int64_t newest_open() const { return open_; }
  // Evaluations up to this barrier are complete, as far as the coordinator has said.
  int64_t evaluated() const { return evaluated_; }
  // The last barrier at or before `step` is open, and the coordinator does not hold that step.
  bool passed(int64_t step) const { return !held_back(step) && open_ >= barriers_.last(step); }
  // It is open, or nothing can keep it from opening with the update that makes its weights.
  bool passes_with_update(int64_t step) const;
  // The coordinator holds this step for a while: not everybody knows what changes there.
  bool holds(int64_t step) const { return held_ > 0 && step >= held_; }
  // `step` is a barrier that is still closed.
  bool due(int64_t step) const { return step > open_ && barriers_.is_barrier(step); }

  // The weights are those of the start. state: keeps the optimizer's state with them.
  void take_start(int64_t updates, bool state);
  // Opens the barrier `step`: holds its snapshot where one is due. Returns false while too many are
  // held; training then waits until they are gathered, and memory stays bounded.
  //   keep_weights: pulls for this barrier are answered after the weights have moved on.
  bool open(int64_t step, int64_t updates, bool keep_weights);
  // Drops the snapshots that the coordinator has released. True: it holds steps no longer that it
  // has held.
  bool on_state(const wire::State& state);

  // The snapshot of barrier `step`, the start included, for Fetch; null: it is not held.
  const Snapshot* find(int64_t step) const;
  // The newest barrier that was opened with keep_weights.
  const Snapshot& kept() const { return kept_; }

 private:
  Snapshot take(int64_t step, int64_t updates, bool state);
  bool wants_snapshot(int64_t step) const;
  bool room_for_snapshot() const;
  // Held, or behind the step at which the run stops.
  bool held_back(int64_t step) const {
    return holds(step) || (barriers_.stop_step > 0 && step >= barriers_.stop_step);
  }

  Barriers barriers_;  // stop_step and chosen ones: as the coordinator has said
  Shard& shard_;
  TrainingObserver& observer_;
  int64_t open_;
  int64_t released_ = -1;
  int64_t evaluated_ = 0;
  int64_t held_ = 0;  // no weights for steps from here on (State.held_step); 0: all
  Snapshot start_;
  Snapshot kept_;
  std::deque<Snapshot> snapshots_;  // with optimizer state, oldest first
};

}  // namespace pushpull
