// The evaluations of a run whose results matter (`stop-when`, `checkpoint-best`): training waits for
// each of them, and one of them may end the run. Part of the coordinator's state machine. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/job/barriers.h"
#include "ps/members/declarations.h"
#include "ps/work/best_evaluation.h"

namespace pushpull {

struct Job;

class FollowedEvaluations {
 public:
  // job: borrowed. start_step: of this term. total_steps: of the job. before: of the run so far.
  FollowedEvaluations(const Job& job, const Declaration& declaration, int64_t start_step,
                      int64_t total_steps, const EvaluationRecord& before);

  // Takes the result of an evaluation. Returns true if the run ends there, before its end.
  bool add(const Evaluation& evaluation, const Barriers& barriers);

  // Returns true if the job follows its evaluations.
  bool any() const { return best_.has_value(); }
  // Returns true if the run ends before its last step.
  bool stopped_early() const { return stopped_early_; }
  // The newest evaluation after which steps may begin, or the start.
  int64_t evaluated() const { return evaluated_; }
  // Returns true if the checkpoint of this step is to be kept as the best one.
  bool is_best(int64_t step) const;
  // Returns what the evaluations have shown; empty if the job follows none.
  EvaluationRecord record() const { return best_ ? best_->record() : EvaluationRecord(); }
  // Returns a line that says why the run ends early.
  std::string text() const { return best_->text(); }

 private:
  const Job& job_;
  const int64_t total_steps_;
  std::optional<BestEvaluation> best_;
  bool stopped_early_;
  int64_t evaluated_;
};

}  // namespace pushpull
