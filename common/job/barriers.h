// The steps at which every server pauses with exactly the updates of all earlier steps, under any
// strategy: evaluations, checkpoints, copies for recovering a lost server, and the end. Under
// local:H the servers' weights change only at the end of a round; a barrier then moves to the first
// end of a round at or after its step, so that observing does not change the training. Plain data;
// any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pushpull {

struct Job;

struct Barriers {
  int64_t eval_every = 0;        // steps; 0 = at the end only
  int64_t checkpoint_every = 0;  // steps; 0 = at the end only
  int64_t start_step = 0;        // no barrier is due at the start, unless it is the end
  int64_t end_step = 0;
  int64_t round = 1;       // length in steps; rounds end at its multiples, the last one at end_step
  int64_t copy_every = 0;  // steps; 0 = never
  int64_t stop_step = 0;   // one more checkpoint, after which the run stops; 0 = none
  bool may_choose = false;  // the coordinator may add checkpoints during training
  // No step after an evaluation begins before its result is known, and its weights are gathered.
  bool awaits_evaluations = false;
  bool averages = false;             // evaluations are of the averaged weights at their barrier
  std::vector<int64_t> chosen = {};  // the newest added ones, ascending
  // The first step that may not begin yet, because some member does not know of a change there; 0
  // for none.
  int64_t held_step = 0;

  // Adds a checkpoint at `step`, which must be the end of a round. Ignores a step that is not after
  // the newest one.
  void choose(int64_t step) {
    if (step <= start_step || step >= end_step) return;
    if (!chosen.empty() && step <= chosen.back()) return;
    chosen.push_back(step);
    if (chosen.size() > kMaxChosen) chosen.erase(chosen.begin());
  }

  // Returns true if no step is left, only the evaluation of the weights that the run starts with: an
  // earlier process of the coordinator was killed during the last evaluation.
  bool starts_at_end() const { return start_step == end_step; }
  bool evaluation_due(int64_t step) const { return due(step, eval_every); }
  bool checkpoint_due(int64_t step) const {
    return due(step, checkpoint_every) || stops_at(step) ||
           std::ranges::find(chosen, step) != chosen.end();
  }
  bool stops_at(int64_t step) const { return stop_step > 0 && step == stop_step; }
  // Returns true while this step may not begin yet.
  bool holds(int64_t step) const { return held_step > 0 && step >= held_step; }
  // Returns true if the step does not begin, at least not yet: it is held, or the run stops before it.
  bool is_held_back(int64_t step) const {
    return holds(step) || (stop_step > 0 && step >= stop_step);
  }
  // Returns whether server 0 gets a copy of the other servers' weights. A checkpoint includes such
  // a copy.
  bool copy_due(int64_t step) const { return copy_every > 0 && due(step, copy_every); }
  // Returns whether the weights of an evaluation are gathered, to keep them if they are the best.
  bool keeps_evaluated(int64_t step) const { return awaits_evaluations && evaluation_due(step); }
  bool snapshot_due(int64_t step) const {
    return checkpoint_due(step) || copy_due(step) || keeps_evaluated(step);
  }
  // Returns whether workers store the weights that they keep (all-reduce).
  bool store_due(int64_t step) const { return checkpoint_due(step) || keeps_evaluated(step); }
  bool is_barrier(int64_t step) const { return evaluation_due(step) || snapshot_due(step); }

  // Returns the last barrier at or before `step`, or start_step.
  int64_t last(int64_t step) const {
    if (step >= end_step) return end_step;
    int64_t found = start_step;
    for (const int64_t every : {eval_every, checkpoint_every, copy_every}) {
      if (every == 0) continue;
      const int64_t multiple = step / round * round / every * every;
      if (multiple > start_step) found = std::max(found, end_of_round_at(multiple));
    }
    for (const int64_t checkpoint : chosen) {
      if (checkpoint <= step) found = std::max(found, checkpoint);
    }
    return found;
  }

  // Returns the first barrier after `step`.
  int64_t next(int64_t step) const {
    const int64_t next = std::min(
        {next_of(step, eval_every), next_of(step, checkpoint_every), next_of(step, copy_every)});
    const auto behind = std::ranges::upper_bound(chosen, step);
    return behind == chosen.end() ? next : std::min(next, *behind);
  }
  int64_t next_evaluation(int64_t step) const { return next_of(step, eval_every); }
  // Returns true if `eval-every` asks for this evaluation, wherever the run ends.
  bool is_regular_evaluation(int64_t step) const {
    if (eval_every == 0 || step <= 0 || step % round != 0) return false;
    return step / eval_every > std::max<int64_t>((step - 1) / round * round, 0) / eval_every;
  }
  // Returns true if a step may begin: the evaluation before it has a result. No step begins at the
  // end.
  //   evaluated: barrier of the newest evaluation with one, or start_step.
  bool may_begin(int64_t step, int64_t evaluated) const {
    return !awaits_evaluations || step >= end_step || step < next_evaluation(evaluated);
  }
  // Returns the first checkpoint after `step` that `checkpoint-every` asks for.
  int64_t next_checkpoint(int64_t step) const { return next_of(step, checkpoint_every); }

  // [step, round_end(step)) is a round if starts_round(step).
  bool starts_round(int64_t step) const { return step == start_step || step % round == 0; }
  int64_t round_end(int64_t step) const { return std::min((step / round + 1) * round, end_step); }
  // Returns the start of the round that ends at `step`.
  int64_t round_start(int64_t step) const {
    return std::max((step - 1) / round * round, start_step);
  }
  // Returns the first multiple of `round` at or after `step`. The last round may end earlier, at
  // end_step.
  int64_t end_of_round_at(int64_t step) const { return (step + round - 1) / round * round; }

 private:
  static constexpr size_t kMaxChosen = 2;  // every process has passed the older ones

  // Returns true if a multiple of `every` lies in the steps since the end of the previous round.
  bool due(int64_t step, int64_t every) const {
    if (step == end_step) return true;
    if (step <= start_step || step > end_step) return false;
    if (every == 0 || step % round != 0) return false;
    return step / every > std::max(step - round, start_step) / every;
  }

  int64_t next_of(int64_t step, int64_t every) const {
    if (every == 0) return end_step;
    const int64_t since = std::max(step / round * round, std::min(step, start_step));
    return std::min(end_step, end_of_round_at((since / every + 1) * every));
  }
};

// Orders the work of a run: the evaluation at a barrier comes after all training steps before the
// barrier, and before the step that begins there.
inline int64_t work_order(int64_t step, bool evaluates) { return 2 * step + (evaluates ? 0 : 1); }

// In all-reduce, a worker waits while server 0 has not answered more than this many of its loss
// reports. This bounds its lead over server 0, which accepts 16 pushes in advance.
inline constexpr int64_t kMaxReports = 8;

// Returns the barriers of a job that trains from start_step to end_step.
Barriers barriers_of(const Job& job, int64_t start_step, int64_t end_step);

}  // namespace pushpull
