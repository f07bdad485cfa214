// Steps at which every server stands still for a moment so that the weights are those of all updates before
// and none after, under any strategy: evaluations, checkpoints, the end. Plain data; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pushpull {

struct Barriers {
  int64_t eval_every = 0;        // steps; 0: at the end only
  int64_t checkpoint_every = 0;  // steps; 0: at the end only
  int64_t start_step = 0;        // nothing is due at the start
  int64_t end_step = 0;

  bool evaluation_due(int64_t step) const { return due(step, eval_every); }
  bool checkpoint_due(int64_t step) const { return due(step, checkpoint_every); }
  bool is_barrier(int64_t step) const { return evaluation_due(step) || checkpoint_due(step); }

  // The last barrier at or before `step`; start_step where there is none.
  int64_t last(int64_t step) const {
    if (step >= end_step) return end_step;
    int64_t found = start_step;
    for (const int64_t every : {eval_every, checkpoint_every}) {
      if (every > 0) found = std::max(found, step / every * every);
    }
    return found;
  }

  // The first barrier after `step`.
  int64_t next(int64_t step) const {
    int64_t found = end_step;
    for (const int64_t every : {eval_every, checkpoint_every}) {
      if (every > 0) found = std::min(found, (step / every + 1) * every);
    }
    return found;
  }

 private:
  bool due(int64_t step, int64_t every) const {
    if (step <= start_step || step > end_step) return false;
    return step == end_step || (every > 0 && step % every == 0);
  }
};

}  // namespace pushpull
