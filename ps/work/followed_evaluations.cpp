#include "ps/work/followed_evaluations.h"

#include "common/job/job.h"

namespace pushpull {

FollowedEvaluations::FollowedEvaluations(const Job& job, const Declaration& declaration,
                                         int64_t start_step, int64_t total_steps,
                                         const EvaluationRecord& before)
    : job_(job),
      total_steps_(total_steps),
      stopped_early_(stops_early_at(job, before, start_step)),
      evaluated_(start_step) {
  if (!job.follows_evaluations()) return;
  best_.emplace(job, measure_of(job, declaration.heads, declaration.test_samples), before);
}

// An evaluation that only --stop-after asks for does not count: the whole run has none there.
bool FollowedEvaluations::add(const Evaluation& evaluation, const Barriers& barriers) {
  if (!best_) return false;
  const int64_t step = evaluation.step;
  if (barriers.is_regular_evaluation(step) || step == total_steps_) best_->add(evaluation);
  if (best_->stops() && step < barriers.end_step) return stopped_early_ = true;
  evaluated_ = step;
  return false;
}

bool FollowedEvaluations::is_best(int64_t step) const {
  return job_.checkpoint_best && best_ && best_->is_best(step);
}

}  // namespace pushpull
