// The barriers at one server: the newest open one, and the snapshots kept for processes that fetch
// them. The gate owns the server's `Barriers`, and other parts ask it. A snapshot references the
// shard's memory and copies nothing. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "common/job/barriers.h"
#include "common/net/message.h"
#include "ps/server/commit.h"

namespace pushpull {

class Shard;

struct Snapshot {
  int64_t step = -1;  // -1 if there is none
  int64_t updates = 0;
  std::map<int, Payload> weights;             // by slice
  std::map<int, std::vector<Payload>> state;  // the optimizer's vectors, by slice
};

class BarrierGate {
 public:
  // Borrows shard and observer.
  BarrierGate(Barriers barriers, Shard& shard, TrainingObserver& observer);

  const Barriers& barriers() const { return barriers_; }
  // The newest barrier that is open.
  int64_t newest_open() const { return open_; }
  // Evaluations up to this barrier are complete, as far as the coordinator has reported.
  int64_t evaluated() const { return evaluated_; }
  // Returns true if the last barrier at or before `step` is open and the coordinator does not hold
  // the step.
  bool passed(int64_t step) const {
    return !barriers_.is_held_back(step) && open_ >= barriers_.last(step);
  }
  // Like `passed`, or if the update that makes the step's weights is sure to open its barrier.
  bool passes_with_update(int64_t step) const;
  // Returns true while the coordinator holds this step because not all members know of a change
  // there.
  bool holds(int64_t step) const { return barriers_.holds(step); }
  // Returns true if `step` is a barrier that is still closed.
  bool due(int64_t step) const { return step > open_ && barriers_.is_barrier(step); }

  // Takes the weights of the start.
  //   state: with the optimizer's state.
  void take_start(int64_t updates, bool state);
  // Opens the barrier `step` and takes its snapshot if one is due. Returns false while too many
  // snapshots are held: training then waits until one is gathered, which bounds memory.
  //   keep_weights: pulls for this barrier are answered after the weights have moved on.
  // Averages that an evaluation takes are always kept: the next update changes them in place.
  bool open(int64_t step, int64_t updates, bool keep_weights);
  // Drops the snapshots that the coordinator has released. Returns true if a hold on steps has been
  // lifted or moved.
  bool on_state(const wire::State& state);

  // Returns the snapshot of barrier `step`, for Fetch, or null if none is held. Includes the start.
  const Snapshot* find(int64_t step) const;
  // The weights of the newest barrier that has kept some. With Barriers::averages they are the averages.
  const Snapshot& kept() const { return kept_; }
  // Returns the averages of barrier `step`, or null if they are not kept: as the weights, those of the
  // newest barrier, and of the version before it for a worker that takes over a share.
  const Snapshot* averages(int64_t step) const;

 private:
  Snapshot take(int64_t step, int64_t updates, bool state);
  Snapshot take_averages(int64_t step, int64_t updates);
  void keep_averages(int64_t step, int64_t updates);
  bool wants_snapshot(int64_t step) const;
  bool room_for_snapshot() const;

  Barriers barriers_;  // what changes (stop_step, held_step, chosen) is as the coordinator reports
  Shard& shard_;
  TrainingObserver& observer_;
  int64_t open_;
  int64_t released_ = -1;
  int64_t evaluated_ = 0;
  Snapshot start_;
  Snapshot kept_;
  Snapshot kept_before_;            // averages of the version before kept_, or of the start
  std::deque<Snapshot> snapshots_;  // with optimizer state, oldest first
};

}  // namespace pushpull
