#include "ps/work/training_progress.h"

#include <algorithm>

namespace pushpull {

TrainingProgress::TrainingProgress(const Job& job, int workers, int64_t start_step)
    : micro_batch_(job.micro_batch),
      leaves_(job.micro_batches()),
      pushes_of_step_(!job.strategy.traits().whole_steps
                          ? std::min<int64_t>(workers, leaves_) - job.strategy.backups
                          : 0),
      pushes_dropped_per_worker_(static_cast<size_t>(workers)),
      samples_per_worker_(static_cast<size_t>(workers)),
      floor_(start_step) {}

void TrainingProgress::add(const Commit& commit, int rank) {
  const auto worker = static_cast<size_t>(rank);
  const bool known = rank >= 0 && worker < samples_per_worker_.size();
  if (commit.dropped) {
    ++pushes_dropped_;
    if (known) ++pushes_dropped_per_worker_[worker];
  }
  const int64_t samples = commit.range.size() * commit.steps * micro_batch_;
  add_to_process(commit, samples);
  if (!commit.counted) return;
  ++pushes_applied_;
  samples_ += samples;
  data_hash_ += commit.data_hash;
  if (known) samples_per_worker_[worker] += samples;
  // no losses at all, or those of each step
  const std::span<const float> losses = commit.losses;
  const size_t each = losses.size() / static_cast<size_t>(commit.steps);
  for (int64_t i = 0; i < commit.steps; ++i) {
    add_losses(commit.step + i, commit.range.lo,
               losses.subspan(static_cast<size_t>(i) * each, each), commit.range.size());
  }
  close_steps();
}

void TrainingProgress::add_to_process(const Commit& commit, int64_t samples) {
  PushedWork& work = by_process_[commit.incarnation];
  const int64_t behind = commit.step + commit.steps;
  work.clock = std::max(work.clock, behind);
  if (!commit.counted) return;
  work.step = std::max(work.step, behind);
  work.samples += samples;
  ++work.pushes;
  work.staleness_sum += commit.staleness;
  work.staleness_max = std::max(work.staleness_max, commit.staleness);
}

void TrainingProgress::add_losses(int64_t step, int64_t lo, std::span<const float> losses,
                                  int64_t covered) {
  Step& open = open_[step];
  open.losses[lo].assign(losses.begin(), losses.end());
  open.covered += covered;
}

bool TrainingProgress::whole(const Step& step) const {
  if (pushes_of_step_ == 0) return step.covered == leaves_;
  return std::ssize(step.losses) == pushes_of_step_;
}

void TrainingProgress::close_steps() {
  for (auto first = open_.find(floor_); first != open_.end() && whole(first->second);
       first = open_.find(floor_)) {
    double sum = 0.0;
    for (const auto& [lo, losses] : first->second.losses) {
      for (const float loss : losses) sum += loss;
    }
    newest_loss_ = sum / static_cast<double>(first->second.covered);
    losses_.push_back(*newest_loss_);
    if (losses_.size() > kMaxLosses) losses_.pop_front();
    open_.erase(first);
    ++floor_;
  }
}

std::optional<double> TrainingProgress::mean_loss(int64_t steps) const {
  const auto count =
      std::min<size_t>(losses_.size(), static_cast<size_t>(std::max<int64_t>(steps, 1)));
  if (count == 0) return std::nullopt;
  double sum = 0.0;
  for (size_t i = losses_.size() - count; i < losses_.size(); ++i) sum += losses_[i];
  return sum / static_cast<double>(count);
}

}  // namespace pushpull
