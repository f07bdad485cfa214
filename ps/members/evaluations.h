// The evaluations of a run: their results, and the best one so far.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/io/run_counts.h"
#include "common/job/barriers.h"
#include "common/layout/metric.h"
#include "common/net/message.h"
#include "ps/members/declarations.h"
#include "ps/members/measure.h"

namespace pushpull {

struct Job;

// The results of evaluations, collected chunk by chunk from workers. Part of the coordinator's
// state machine. Not thread-safe.
struct Evaluation {
  int64_t step = 0;
  std::vector<HeadResult> heads;  // in the order of the declaration

  friend bool operator==(const Evaluation&, const Evaluation&) = default;
};

// Sums the results in the order of the chunks, so that an evaluation does not depend on which
// worker computed which chunk.
class Evaluations {
 public:
  // heads: of the model.
  Evaluations(int64_t test_samples, int64_t micro_batch, std::vector<HeadInfo> heads);

  int64_t chunks() const { return chunks_; }
  const std::vector<HeadInfo>& heads() const { return heads_; }
  // Adds a result with the sums of all heads. Returns the evaluation if this completes it: it is not yet complete
  // if a head has a formula.
  std::optional<Evaluation> add(int64_t step, const wire::ChunkResult& result);
  // An evaluation with all chunks, and its named sums, from which a worker's program computes the values of the heads
  // with a formula.
  struct Totals {
    Evaluation evaluation;
    NamedSums named;
  };
  // Returns the oldest one that waits for these values, or null.
  const Totals* waiting() const;
  // Takes the values, in the order of these heads; NaN: a head has none. Returns the evaluation if it has waited for
  // them.
  std::optional<Evaluation> take_values(int64_t step, std::span<const double> values);
  bool complete(int64_t step) const;
  const std::optional<Evaluation>& newest() const { return newest_; }

 private:
  int64_t chunks_;
  std::vector<HeadInfo> heads_;
  std::map<int64_t, std::map<int64_t, wire::ChunkResult>> open_;
  std::map<int64_t, Totals> waiting_;  // by step
  std::optional<Evaluation> newest_;
};

// Follows one measure over the evaluations of a run: the best value, and how many evaluations since
// then were not better (`stop-when`, `checkpoint-best`). Part of the coordinator's state machine.
// Not thread-safe.
class BestEvaluation {
 public:
  // before: of the run so far; it counts if it has the measure of this job.
  BestEvaluation(const Job& job, const Measure& measure, const EvaluationRecord& before);

  // Takes an evaluation that counts. Ignores a step that is not after the newest one: it is
  // evaluated again after a return to its checkpoint. A value that is not finite is not better.
  void add(const Evaluation& evaluation);
  // Returns true if the patience is exhausted.
  bool stops() const;
  bool is_best(int64_t step) const { return record_.best_step > 0 && record_.best_step == step; }
  const EvaluationRecord& record() const { return record_; }
  // Returns a line that says why the run stops.
  std::string text() const;

 private:
  std::optional<double> value_of(const Evaluation& evaluation) const;

  const Job& job_;
  const Measure measure_;
  EvaluationRecord record_;
};

// Returns true if the job's rule stops a run with this record.
bool is_exhausted(const Job& job, const EvaluationRecord& record);
// Returns true if such a run has stopped at this step.
bool stops_early_at(const Job& job, const EvaluationRecord& record, int64_t step);
// Returns the step at which a run that starts at `step` ends, unless a later evaluation ends it:
// `step` itself if an evaluation has ended it there.
int64_t end_of_run(const Job& job, const EvaluationRecord& record, int64_t step,
                   int64_t total_steps);

// The evaluations of a run whose results matter (`stop-when`, `checkpoint-best`): training waits for
// each of them, and one of them may end the run. Part of the coordinator's state machine. Not
// thread-safe.
class FollowedEvaluations {
 public:
  // No training is as many evaluations ahead of its checkpoints.
  static constexpr size_t kKeptRecords = 16;

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
  // Returns what those up to this step have shown, of which kKeptRecords are known: what a checkpoint of the step
  // holds, though it may be written later.
  EvaluationRecord record_at(int64_t step) const;
  // Returns a line that says why the run ends early.
  std::string text() const { return best_->text(); }

 private:
  const Job& job_;
  const int64_t total_steps_;
  std::optional<BestEvaluation> best_;
  std::deque<EvaluationRecord> records_;  // ascending
  bool stopped_early_;
  int64_t evaluated_;
};

}  // namespace pushpull
