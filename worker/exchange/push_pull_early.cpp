// PushPull where a task begins while its weights are still coming: forward waits for the slices of
// the layer that it is about to compute, and the others arrive meanwhile (Jayarajan et al.,
// Priority-Based Parameter Propagation, MLSys 2019; Peng et al., ByteScheduler, SOSP 2019).
//
// Only in the plain steady case: this worker has had weights of the run, and the pull under way is
// for exactly the version of the task's step, so that whatever slice is here is final. A newcomer
// that locates the run, backup:B, ssp and async, whose versions are not known before all of them
// are here, and evaluations wait as ever.
#include <algorithm>

#include "worker/exchange/push_pull.h"

namespace pushpull {

bool PushPull::coming_for(const Task& task) const {
  return pulling_ && clock_ >= 0 && wants_exact_version() && !backup() &&
         task.kind == Task::kCompute && pull_.clock() == task.step;
}

std::optional<Task> PushPull::early() const {
  if (!pulling_ || clock_ < 0 || !lockstep() || backup()) return std::nullopt;
  const std::optional<Task> task = wanted();
  if (!task || !coming_for(*task) || !weights_.has_any()) return std::nullopt;
  return task;
}

// A push of several messages takes the next pull along with its first one, so that slices come back
// while others are still on their way out: a link carries both ways at once. Only where what is
// pulled next is known before the push has ended, and where asking does not mean letting go of what
// lies with the server.
void PushPull::pull_while_pushing() {
  if (pulling_ || setup_.acknowledge || !lockstep() || backup() || shares_.size() != 1) return;
  if (std::any_of(links_.begin(), links_.end(),
                  [](const ServerLink& link) { return link.in_place || link.asked_in_place; })) {
    return;
  }
  const int64_t clock = setup_.barriers.round_end(push_step_);
  if (clock >= setup_.barriers.end_step || setup_.barriers.evaluation_due(clock)) return;
  start_pull(clock, false, false, 0);
}

bool PushPull::stands(const Task& task) const {
  const std::optional<Task> now = wanted();
  const bool same = now && now->kind == task.kind && now->step == task.step &&
                    now->range == task.range && now->steps == task.steps;
  return same && (coming_for(task) || (!pulling_ && weights_fit(task)));
}

bool PushPull::here(Range elements) const { return all_here() || weights_.has(elements); }

std::span<const float> PushPull::weights_of(const Task& task) const {
  return coming_for(task) ? weights_.coming() : weights_.current();
}

}  // namespace pushpull
