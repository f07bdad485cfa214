#include "ps/members/committed_work.h"

#include <algorithm>

#include "common/job/job.h"
#include "common/layout/metric.h"

namespace pushpull {

namespace {

// At least the counts of two checkpoints that are being gathered, and of one that has just opened.
constexpr size_t kKeptCounts = 4;

void add_at(std::vector<int64_t>& by_rank, int rank, int64_t value) {
  if (rank < 0) return;
  if (std::ssize(by_rank) <= rank) by_rank.resize(static_cast<size_t>(rank) + 1);
  by_rank[static_cast<size_t>(rank)] += value;
}

void add_push(RunCounts& counts, const Commit& commit, int rank, int64_t samples) {
  ++counts.pushes_applied;
  counts.samples += samples;
  counts.bad_gradients += std::ssize(commit.bad);
  counts.data_hash += commit.data_hash;
  add_at(counts.samples_per_worker, rank, samples);
  counts.samples_per_process[commit.incarnation] += samples;
  for (const uint64_t other : commit.others) counts.samples_per_process[other] += samples;
}

void add_counts(RunCounts& to, const RunCounts& more) {
  to.pushes_applied += more.pushes_applied;
  to.samples += more.samples;
  to.bad_gradients += more.bad_gradients;
  to.data_hash += more.data_hash;
  if (more.learning_rate) to.learning_rate = more.learning_rate;
  for (size_t rank = 0; rank < more.samples_per_worker.size(); ++rank) {
    add_at(to.samples_per_worker, static_cast<int>(rank), more.samples_per_worker[rank]);
  }
  for (const auto& [incarnation, samples] : more.samples_per_process) {
    to.samples_per_process[incarnation] += samples;
  }
}

}  // namespace

CommittedWork::CommittedWork(const Job& job, int workers, const Barriers& barriers,
                             RunCounts counts)
    : micro_batch_(job.micro_batch),
      leaves_(job.micro_batches()),
      pushes_of_step_(!job.strategy.traits().whole_steps
                          ? std::min<int64_t>(workers / job.stages, leaves_) - job.strategy.backups
                          : 0),
      barriers_(barriers),
      counts_(std::move(counts)),
      floor_(barriers.start_step) {
  // The checkpoint may be from another number of workers.
  const size_t ranks = std::max(static_cast<size_t>(workers), counts_.samples_per_worker.size());
  counts_.samples_per_worker.resize(ranks);
  counts_.pushes_dropped_per_worker.resize(
      std::max(static_cast<size_t>(workers), counts_.pushes_dropped_per_worker.size()));
  whole_ = counts_;
}

void CommittedWork::add(const Commit& commit, int rank) {
  if (commit.dropped) {
    ++counts_.pushes_dropped;
    add_at(counts_.pushes_dropped_per_worker, rank, 1);
  }
  const int64_t samples = commit.range.size() * commit.steps * micro_batch_;
  add_to_process(commit.incarnation, commit);
  for (const uint64_t other : commit.others) add_to_process(other, commit);
  if (!commit.counted) return;
  add_push(counts_, commit, rank, samples);
  Step& last = open_[commit.step + commit.steps - 1];
  add_push(last.counts, commit, rank, samples);
  const bool is_first = last.losses.empty() || commit.range.lo < last.losses.begin()->first;
  if (is_first && commit.learning_rate) last.counts.learning_rate = commit.learning_rate;
  // Either no losses, or those of each step.
  const std::span<const float> losses = commit.losses;
  const size_t each = losses.size() / static_cast<size_t>(commit.steps);
  for (int64_t i = 0; i < commit.steps; ++i) {
    add_losses(commit.step + i, commit.range.lo,
               losses.subspan(static_cast<size_t>(i) * each, each), commit.range.size());
  }
  close_steps();
}

void CommittedWork::add_to_process(uint64_t incarnation, const Commit& commit) {
  PushedWork& work = by_process_[incarnation];
  const int64_t behind = commit.step + commit.steps;
  work.clock = std::max(work.clock, behind);
  if (!commit.counted) return;
  work.step = std::max(work.step, behind);
  ++work.pushes;
  work.staleness_sum += commit.staleness;
  work.staleness_max = std::max(work.staleness_max, commit.staleness);
}

void CommittedWork::add_losses(int64_t step, int64_t lo, std::span<const float> losses,
                               int64_t covered) {
  Step& open = open_[step];
  open.losses[lo].assign(losses.begin(), losses.end());
  open.covered += covered;
}

bool CommittedWork::whole(const Step& step) const {
  if (pushes_of_step_ == 0) return step.covered == leaves_;
  return std::ssize(step.losses) == pushes_of_step_;
}

void CommittedWork::close_steps() {
  for (auto first = open_.find(floor_); first != open_.end() && whole(first->second);
       first = open_.find(floor_)) {
    note_loss(first->second);
    add_counts(whole_, first->second.counts);
    open_.erase(first);
    ++floor_;
    keep_counts();
  }
}

// Takes the mean over the micro-batches whose losses are known.
void CommittedWork::note_loss(const Step& step) {
  double sum = 0.0;
  int64_t known = step.covered;
  for (const auto& [lo, losses] : step.losses) {
    for (const float loss : losses) {
      if (loss == kUnknownLoss) {
        --known;
      } else {
        sum += loss;
      }
    }
  }
  newest_loss_.reset();
  if (known == 0) return;
  newest_loss_ = sum / static_cast<double>(known);
  losses_.push_back(*newest_loss_);
  if (losses_.size() > kMaxLosses) losses_.pop_front();
}

void CommittedWork::keep_counts() {
  if (!barriers_.store_due(floor_)) return;
  RunCounts& kept = kept_[floor_] = whole_;
  kept.pushes_dropped = counts_.pushes_dropped;
  kept.pushes_dropped_per_worker = counts_.pushes_dropped_per_worker;
  if (kept_.size() > kKeptCounts) kept_.erase(kept_.begin());
}

wire::Progress CommittedWork::progress() const {
  wire::Progress out;
  out.set_steps(floor_);
  if (newest_loss_) out.set_loss(*newest_loss_);
  if (whole_.learning_rate) out.set_learning_rate(*whole_.learning_rate);
  return out;
}

int64_t CommittedWork::samples_of(uint64_t incarnation) const {
  const auto found = counts_.samples_per_process.find(incarnation);
  return found == counts_.samples_per_process.end() ? 0 : found->second;
}

const RunCounts* CommittedWork::counts_at(int64_t step) const {
  const auto found = kept_.find(step);
  return found == kept_.end() ? nullptr : &found->second;
}

std::optional<double> CommittedWork::mean_loss(int64_t steps) const {
  const auto count =
      std::min<size_t>(losses_.size(), static_cast<size_t>(std::max<int64_t>(steps, 1)));
  if (count == 0) return std::nullopt;
  double sum = 0.0;
  for (size_t i = losses_.size() - count; i < losses_.size(); ++i) sum += losses_[i];
  return sum / static_cast<double>(count);
}

}  // namespace pushpull
