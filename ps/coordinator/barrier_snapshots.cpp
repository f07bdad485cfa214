#include "ps/coordinator/barrier_snapshots.h"

#include <algorithm>

namespace pushpull {

BarrierSnapshots::BarrierSnapshots(const Barriers& barriers)
    : barriers_(barriers),
      newest_open_(barriers.start_step),
      newest_request_(barriers.start_step),
      gathered_barrier_(barriers.start_step - 1) {
  if (barriers.starts_at_end()) {
    newest_open_ = newest_request_ = barriers.start_step - 1;  // server 0 opens it
  } else {
    requests_.push_back(barriers.start_step);
  }
}

bool BarrierSnapshots::open(int64_t step, int64_t samples) {
  if (barriers_.snapshot_due(step) && step > newest_request_) {
    newest_request_ = step;
    requests_.push_back(step);
  }
  if (step <= newest_open_) return false;
  newest_open_ = step;
  opened_.push_back({step, samples});
  return true;
}

std::optional<int64_t> BarrierSnapshots::take_request(bool writing) {
  if (requests_.empty()) return std::nullopt;
  const int64_t step = requests_.front();
  if (writing && is_whole(step)) return std::nullopt;
  requests_.pop_front();
  if (is_written(step) && !barriers_.keeps_evaluated(step)) asked(step);
  return step;
}

void BarrierSnapshots::gathered(int64_t step) {
  gathered_barrier_ = std::max(gathered_barrier_, step);
}

void BarrierSnapshots::written(int64_t step) {
  gathered(step);
  written_barrier_ = std::max(written_barrier_, step);
}

}  // namespace pushpull
