#include "ps/run_record.h"

#include <algorithm>

namespace pushpull {

EvaluationRecord::EvaluationRecord(int64_t test_samples, int64_t micro_batch)
    : test_samples_(test_samples), chunks_((test_samples + micro_batch - 1) / micro_batch) {}

std::optional<Evaluation> EvaluationRecord::add(int64_t step, const wire::ChunkResult& result) {
  if (result.chunk() < 0 || result.chunk() >= chunks_ || complete(step)) return std::nullopt;
  auto& results = open_[step];
  results[result.chunk()] = result;
  if (static_cast<int64_t>(results.size()) < chunks_) return std::nullopt;
  Evaluation out;
  out.step = step;
  out.total = test_samples_;
  for (const auto& [chunk, r] : results) {
    out.correct += r.correct();
    out.loss += r.loss();
  }
  out.loss /= static_cast<double>(test_samples_);
  // an older one that is still open has lost its evaluator: it will not become complete
  open_.erase(open_.begin(), open_.upper_bound(step));
  newest_ = out;
  new_.push_back(out);
  return out;
}

bool EvaluationRecord::complete(int64_t step) const {
  return chunks_ == 0 || (newest_ && newest_->step >= step);
}

TrainingRecord::TrainingRecord(const Job& job, int workers, int64_t start_step)
    : micro_batch_(job.micro_batch),
      leaves_(job.micro_batches()),
      samples_per_worker_(static_cast<size_t>(workers)),
      floor_(start_step) {}

void TrainingRecord::add(const Commit& commit, int rank) {
  if (!commit.counted) return;
  const int64_t samples = commit.range.size() * micro_batch_;
  samples_ += samples;
  data_hash_ += commit.data_hash;
  if (rank >= 0 && static_cast<size_t>(rank) < samples_per_worker_.size()) {
    samples_per_worker_[static_cast<size_t>(rank)] += samples;
  }
  Step& step = open_[commit.step];
  step.losses[commit.range.lo] = commit.losses;
  step.covered += commit.range.size();
  for (auto first = open_.find(floor_); first != open_.end() && first->second.covered == leaves_;
       first = open_.find(floor_)) {
    double sum = 0.0;
    for (const auto& [lo, losses] : first->second.losses) {
      for (const float loss : losses) sum += loss;
    }
    newest_loss_ = sum / static_cast<double>(leaves_);
    losses_.push_back(*newest_loss_);
    if (losses_.size() > kMaxLosses) losses_.pop_front();
    open_.erase(first);
    ++floor_;
  }
}

std::optional<double> TrainingRecord::mean_loss(int64_t steps) const {
  const auto count =
      std::min<size_t>(losses_.size(), static_cast<size_t>(std::max<int64_t>(steps, 1)));
  if (count == 0) return std::nullopt;
  double sum = 0.0;
  for (size_t i = losses_.size() - count; i < losses_.size(); ++i) sum += losses_[i];
  return sum / static_cast<double>(count);
}

}  // namespace pushpull
