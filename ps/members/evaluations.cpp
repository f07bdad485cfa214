#include "ps/members/evaluations.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job.h"
#include "common/net/model_wire.h"

namespace pushpull {

Evaluations::Evaluations(int64_t test_samples, int64_t micro_batch, std::vector<HeadInfo> heads)
    : chunks_((test_samples + micro_batch - 1) / micro_batch), heads_(std::move(heads)) {}

std::optional<Evaluation> Evaluations::add(int64_t step, const wire::ChunkResult& result) {
  if (result.chunk() < 0 || result.chunk() >= chunks_ || complete(step) ||
      waiting_.contains(step)) {
    return std::nullopt;
  }
  auto& results = open_[step];
  results[result.chunk()] = result;
  if (static_cast<int64_t>(results.size()) < chunks_) return std::nullopt;
  Totals totals;
  Evaluation& out = totals.evaluation;
  out.step = step;
  for (const HeadInfo& head : heads_) out.heads.push_back({head, {}});
  for (const auto& [chunk, r] : results) {
    for (size_t i = 0; i < heads_.size(); ++i) {
      out.heads[i].sums.add(from_wire(r.sums(static_cast<int>(i))));
    }
    for (const wire::NamedSum& sum : r.named()) totals.named[sum.name()] += sum.value();
  }
  // An older evaluation that is still open has lost its evaluator and never completes.
  open_.erase(open_.begin(), open_.upper_bound(step));
  const auto has_formula = [](const HeadInfo& head) { return is_formula(head.metric); };
  if (std::ranges::none_of(heads_, has_formula)) return newest_ = out;
  waiting_[step] = std::move(totals);
  return std::nullopt;
}

const Evaluations::Totals* Evaluations::waiting() const {
  return waiting_.empty() ? nullptr : &waiting_.begin()->second;
}

std::optional<Evaluation> Evaluations::take_values(int64_t step, std::span<const double> values) {
  const auto found = waiting_.find(step);
  if (found == waiting_.end()) return std::nullopt;
  Evaluation out = std::move(found->second.evaluation);
  waiting_.erase(found);
  auto value = values.begin();
  for (HeadResult& head : out.heads) {
    if (!is_formula(head.info.metric)) continue;
    PP_ASSERT(value != values.end());
    head.sums = {0.0, std::isfinite(*value) ? 1 : 0, std::isfinite(*value) ? *value : 0.0};
    ++value;
  }
  return newest_ = out;
}

bool Evaluations::complete(int64_t step) const {
  return chunks_ == 0 || (newest_ && newest_->step >= step);
}

bool is_exhausted(const Job& job, const EvaluationRecord& record) {
  return job.stop_when.on() && record.measure == job.stop_when.measure() &&
         record.since_best >= job.stop_when.patience;
}

bool stops_early_at(const Job& job, const EvaluationRecord& record, int64_t step) {
  return step > 0 && record.step == step && is_exhausted(job, record);
}

int64_t end_of_run(const Job& job, const EvaluationRecord& record, int64_t step,
                   int64_t total_steps) {
  if (stops_early_at(job, record, step)) return step;
  return job.stop_after > 0 ? std::min(job.stop_after, total_steps) : total_steps;
}

BestEvaluation::BestEvaluation(const Job& job, const Measure& measure,
                               const EvaluationRecord& before)
    : job_(job), measure_(measure) {
  if (before.measure == job.stop_when.measure()) record_ = before;
  record_.measure = job.stop_when.measure();
}

std::optional<double> BestEvaluation::value_of(const Evaluation& evaluation) const {
  const HeadResult& head = evaluation.heads.at(measure_.head);
  const std::optional<double> value = measure_.is_loss ? head.loss() : head.value();
  return value && std::isfinite(*value) ? value : std::nullopt;
}

void BestEvaluation::add(const Evaluation& evaluation) {
  if (evaluation.step <= record_.step) return;
  record_.step = evaluation.step;
  const std::optional<double> value = value_of(evaluation);
  const bool is_first = record_.best_step == 0;
  const bool is_better =
      value &&
      (is_first || (measure_.higher_is_better ? *value > record_.best : *value < record_.best));
  if (!is_better) {
    ++record_.since_best;
    return;
  }
  record_.best_step = evaluation.step;
  record_.best = *value;
  record_.since_best = 0;
}

bool BestEvaluation::stops() const { return is_exhausted(job_, record_); }

std::string BestEvaluation::text() const {
  std::ostringstream best;
  best << record_.best << " at step " << record_.best_step;
  return "[job] stop-when = " + job_.stop_when.to_string() + ": " +
         plural(record_.since_best, "evaluation") + " brought no better " + record_.measure +
         (record_.best_step > 0 ? " than " + best.str() : std::string()) +
         "; the run ends at step " + std::to_string(record_.step);
}

FollowedEvaluations::FollowedEvaluations(const Job& job, const Declaration& declaration,
                                         int64_t start_step, int64_t total_steps,
                                         const EvaluationRecord& before)
    : job_(job),
      total_steps_(total_steps),
      stopped_early_(stops_early_at(job, before, start_step)),
      evaluated_(start_step) {
  if (!job.follows_evaluations()) return;
  best_.emplace(job, measure_of(job, declaration.heads, declaration.test_samples), before);
  records_.push_back(best_->record());
}

// An evaluation that only --stop-after asks for does not count: the whole run has none there.
bool FollowedEvaluations::add(const Evaluation& evaluation, const Barriers& barriers) {
  if (!best_) return false;
  const int64_t step = evaluation.step;
  if (barriers.is_regular_evaluation(step) || step == total_steps_) {
    best_->add(evaluation);
    records_.push_back(best_->record());
    if (records_.size() > kKeptRecords) records_.pop_front();
  }
  if (best_->stops() && step < barriers.end_step) return stopped_early_ = true;
  evaluated_ = step;
  return false;
}

EvaluationRecord FollowedEvaluations::record_at(int64_t step) const {
  if (records_.empty()) return {};
  EvaluationRecord found = records_.front();
  for (const EvaluationRecord& record : records_) {
    if (record.step <= step) found = record;
  }
  return found;
}

bool FollowedEvaluations::is_best(int64_t step) const {
  return job_.checkpoint_best && best_ && best_->is_best(step);
}

}  // namespace pushpull
