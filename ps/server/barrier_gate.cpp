#include "ps/server/barrier_gate.h"

#include <algorithm>
#include <utility>

#include "ps/engine/shard.h"

namespace pushpull {

namespace {

// One snapshot that is being gathered, and the next one.
constexpr size_t kMaxSnapshots = 2;

}  // namespace

BarrierGate::BarrierGate(Barriers barriers, Shard& shard, TrainingObserver& observer)
    : barriers_(std::move(barriers)),
      shard_(shard),
      observer_(observer),
      open_(barriers_.start_step) {}

bool BarrierGate::passes_with_update(int64_t step) const {
  if (barriers_.is_held_back(step)) return false;
  const int64_t barrier = barriers_.last(step);
  if (open_ >= barrier) return true;
  if (barriers_.next(open_) != barrier) return false;
  return !wants_snapshot(barrier) || room_for_snapshot();
}

// A replacement server need not take a snapshot that was gathered before it joined.
bool BarrierGate::wants_snapshot(int64_t step) const {
  return barriers_.snapshot_due(step) && step > released_;
}

bool BarrierGate::room_for_snapshot() const { return snapshots_.size() < kMaxSnapshots; }

Snapshot BarrierGate::take(int64_t step, int64_t updates, bool state) {
  if (state) shard_.hold_state();
  Snapshot out;
  out.step = step;
  out.updates = updates;
  for (const int slice : shard_.slices()) {
    out.weights[slice] = shard_.weights(slice);
    if (state) out.state[slice] = shard_.state(slice);
  }
  return out;
}

Snapshot BarrierGate::take_averages(int64_t step, int64_t updates) {
  shard_.hold_state();
  Snapshot out;
  out.step = step;
  out.updates = updates;
  for (const int slice : shard_.slices()) out.weights[slice] = shard_.state(slice).back();
  return out;
}

void BarrierGate::keep_averages(int64_t step, int64_t updates) {
  if (shard_.slices().empty()) return;
  const int64_t previous = shard_.previous_version(shard_.slices().front());
  if (kept_.step == previous) kept_before_ = std::move(kept_);
  if (kept_before_.step != previous) kept_before_ = {};
  kept_ = take_averages(step, updates);
}

const Snapshot* BarrierGate::averages(int64_t step) const {
  if (kept_.step == step) return &kept_;
  return kept_before_.step == step ? &kept_before_ : nullptr;
}

// A server that takes the place of a lost one may start at an evaluation that others have begun.
void BarrierGate::take_start(int64_t updates, bool state) {
  start_ = take(barriers_.start_step, updates, state);
  if (barriers_.averages && barriers_.start_step > 0) {
    kept_before_ = take_averages(barriers_.start_step, updates);
  }
  if (barriers_.starts_at_end()) --open_;  // the end is due now
}

bool BarrierGate::open(int64_t step, int64_t updates, bool keep_weights) {
  if (wants_snapshot(step)) {
    if (!room_for_snapshot()) {
      observer_.on_checkpoint_waits(step);
      return false;
    }
    snapshots_.push_back(take(step, updates, true));
  }
  if (barriers_.averages && barriers_.evaluation_due(step)) {
    keep_averages(step, updates);
  } else if (keep_weights) {
    kept_ = take(step, updates, false);
  }
  open_ = step;
  observer_.on_barrier_open(step);
  return true;
}

bool BarrierGate::on_state(const wire::State& state) {
  released_ = std::max(released_, state.released_barrier());
  evaluated_ = std::max(evaluated_, state.evaluated_barrier());
  while (!snapshots_.empty() && snapshots_.front().step <= released_) snapshots_.pop_front();
  if (released_ >= barriers_.start_step) start_ = {};
  barriers_.stop_step = state.stop_step();
  for (const int64_t step : state.chosen_checkpoints()) barriers_.choose(step);
  // The newest barrier has become a checkpoint after it opened: it opens once more, for its
  // snapshot. No later update can have been applied.
  const bool lacks_snapshot = open_ > barriers_.start_step && find(open_) == nullptr;
  if (lacks_snapshot && wants_snapshot(open_)) --open_;
  const int64_t held = std::exchange(barriers_.held_step, state.held_step());
  return held > 0 && barriers_.held_step != held;
}

const Snapshot* BarrierGate::find(int64_t step) const {
  if (step < 0) return nullptr;
  if (step == barriers_.start_step) return start_.step == step ? &start_ : nullptr;
  const auto held = std::find_if(snapshots_.begin(), snapshots_.end(),
                                 [&](const Snapshot& s) { return s.step == step; });
  return held == snapshots_.end() ? nullptr : &*held;
}

}  // namespace pushpull
