// PushPull under backup:B, where the others may have gone on without this worker: it always
// computes on the newest version, and still evaluates its chunks of every evaluation that it has
// passed.
#include <algorithm>

#include "common/base/error.h"
#include "worker/exchange/push_pull.h"

namespace pushpull {

// A share whose next evaluation is due: the servers have reached its barrier.
PushPull::ShareWork* PushPull::backup_evaluation() {
  for (ShareWork& share : shares_) {
    if (share.evaluated_through >= setup_.barriers.end_step) continue;
    if (setup_.barriers.next_evaluation(share.evaluated_through) <= newest_) return &share;
  }
  return nullptr;
}

// A share that has not been computed with these weights.
PushPull::ShareWork* PushPull::backup_share() {
  for (ShareWork& share : shares_) {
    if (share.range.size() > 0 && share.clock <= clock_) return &share;
  }
  return nullptr;
}

Task PushPull::next_of_backup(int64_t now_ms) {
  const int64_t end = setup_.barriers.end_step;
  if (shares_.empty()) return {};
  if (clock_ >= 0) {
    if (const ShareWork* share = backup_evaluation()) {
      const int64_t barrier = setup_.barriers.next_evaluation(share->evaluated_through);
      if (clock_ == barrier) return {Task::kEvaluate, barrier, chunks_of(*share)};
      start_pull(barrier, false, true, now_ms);
      return {};
    }
    if (newest_ == end) return {Task::kDone, end, {}};
    const ShareWork* share = clock_ == newest_ ? backup_share() : nullptr;
    if (share != nullptr) return {Task::kCompute, clock_, share->range};
  }
  // what the next task needs: one more step than the weights that are here, if those are done
  start_pull(clock_ == newest_ ? newest_ + 1 : newest_, true, false, now_ms);
  return {};
}

bool PushPull::came_at_barrier() const {
  return pull_.barrier() && std::all_of(links_.begin(), links_.end(), [](const ServerLink& link) {
           return link.slices.empty() || link.coming_at_barrier;
         });
}

void PushPull::finish_barrier_pull() {
  const int64_t barrier = pull_.clock();
  if (came_at_barrier()) {
    clock_ = barrier;
    return;
  }
  // Everything has been evaluated there: the result of whoever had this share before has arrived.
  // What has come are the newest weights, maybe of two versions.
  for (ShareWork& share : shares_) {
    if (setup_.barriers.next_evaluation(share.evaluated_through) != barrier) continue;
    share.evaluated_through = barrier;
  }
  clock_ = -1;
}

void PushPull::finish_backup_evaluation() {
  ShareWork* share = backup_evaluation();
  PP_ASSERT(share != nullptr);
  share->evaluated_through = setup_.barriers.next_evaluation(share->evaluated_through);
}

}  // namespace pushpull
