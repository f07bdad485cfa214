#include "ps/run/barrier_snapshots.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

BarrierSnapshots::BarrierSnapshots(const Barriers& barriers, std::optional<int64_t> saved)
    : barriers_(barriers),
      newest_open_(barriers.start_step - 1),
      newest_(newest_open_),
      gathered_(newest_open_),
      saved_(saved) {
  if (barriers.starts_at_end()) return;  // server 0 opens it
  newest_ = newest_open_ = barriers.start_step;
  lives_.push_back({barriers.start_step});
}

bool BarrierSnapshots::open(int64_t step) {
  if (barriers_.snapshot_due(step) && step > newest_) {
    newest_ = step;
    lives_.push_back({step});
  }
  if (step <= newest_open_) return false;
  newest_open_ = step;
  return true;
}

std::optional<BarrierSnapshots::Request> BarrierSnapshots::take_request() {
  const auto next = std::ranges::find(lives_, Stage::kOpen, &Life::stage);
  if (next == lives_.end()) return std::nullopt;
  const bool whole = is_whole(next->step);
  if (whole && busy()) return std::nullopt;
  next->stage = Stage::kRequested;
  next->whole = whole;
  if (!whole) return Request{next->step, Extent::kCopy};
  return Request{next->step,
                 next->step == barriers_.start_step ? Extent::kWeights : Extent::kWhole};
}

void BarrierSnapshots::gathered(GatheredState snapshot) {
  const auto life = std::ranges::find(lives_, snapshot.step, &Life::step);
  PP_ASSERT(life != lives_.end() && life->stage == Stage::kRequested);
  gathered_ = std::max(gathered_, snapshot.step);
  if (!life->whole) {
    lives_.erase(life);
    return;
  }
  life->stage = Stage::kGathered;
  life->snapshot = std::move(snapshot);
}

std::optional<BarrierSnapshots::Task> BarrierSnapshots::take_task(bool is_best) {
  const auto life = std::ranges::find_if(lives_, waits);
  if (life == lives_.end()) return std::nullopt;
  const int64_t step = life->step;
  const bool is_start = step == barriers_.start_step;
  if (is_best && !is_start && life->stage == Stage::kGathered) {
    life->stage = Stage::kKeeping;
    return Task{life->snapshot, CheckpointKind::kBest};
  }
  if (!is_written(step)) {
    lives_.erase(life);
    return std::nullopt;
  }
  // Comes last, because it may end the run.
  life->stage = Stage::kWriting;
  Task task{std::exchange(life->snapshot, {}), std::nullopt};
  // Only the summary shows the hash, so only the last checkpoint needs it.
  const bool last = step == barriers_.end_step || barriers_.stops_at(step);
  if (!is_start) task.kind = last ? CheckpointKind::kLast : CheckpointKind::kRolling;
  return task;
}

bool BarrierSnapshots::written(bool saved) {
  const auto life = std::ranges::find_if(lives_, at_disk);
  PP_ASSERT(life != lives_.end());
  if (life->stage == Stage::kKeeping) {
    life->stage = Stage::kKept;
    return false;
  }
  written_ = life->step;
  if (saved && life->step != barriers_.start_step) saved_ = life->step;
  lives_.erase(life);
  return true;
}

std::optional<int64_t> BarrierSnapshots::waiting_step() const {
  const auto life = std::ranges::find_if(lives_, waits);
  return life == lives_.end() ? std::nullopt : std::optional(life->step);
}

std::optional<int64_t> BarrierSnapshots::disk_step() const {
  const auto life = std::ranges::find_if(lives_, at_disk);
  return life == lives_.end() ? std::nullopt : std::optional(life->step);
}

bool BarrierSnapshots::busy() const {
  return std::ranges::any_of(lives_, [](const Life& life) { return life.whole; });
}

}  // namespace pushpull
