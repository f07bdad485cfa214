#include "common/job/barriers.h"

#include "common/job/job.h"

namespace pushpull {

Barriers barriers_of(const Job& job, int64_t start_step, int64_t end_step) {
  Barriers out;
  out.eval_every = job.eval_every;
  out.checkpoint_every = job.checkpoint_every;
  out.start_step = start_step;
  out.end_step = end_step;
  out.round = job.strategy.local_steps;
  out.copy_every = job.copy_distance();
  out.may_choose = job.checkpoint_auto;
  out.awaits_evaluations = job.follows_evaluations();
  out.averages = job.eval_ema;
  return out;
}

}  // namespace pushpull
