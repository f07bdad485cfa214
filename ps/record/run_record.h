// Totals of a run as the coordinator sees it: commits, losses, evaluations. Plain bookkeeping; one
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/job/job.h"
#include "ps/aggregation/commit.h"

namespace pushpull {

struct Evaluation {
  int64_t step = 0;
  int64_t correct = 0;
  int64_t total = 0;
  double loss = 0.0;  // mean
};

// Collects chunk results of evaluations; sums them in chunk order, so that the result does not
// depend on who computed which.
class EvaluationRecord {
 public:
  EvaluationRecord(int64_t test_samples, int64_t micro_batch);

  int64_t chunks() const { return chunks_; }
  // Takes a result in; returns the evaluation when it has become complete.
  std::optional<Evaluation> add(int64_t step, const wire::ChunkResult& result);
  bool complete(int64_t step) const;
  const std::optional<Evaluation>& newest() const { return newest_; }
  // Those that became complete since the last call, in order.
  std::vector<Evaluation> take_new() { return std::exchange(new_, {}); }

 private:
  int64_t test_samples_;
  int64_t chunks_;
  std::map<int64_t, std::map<int64_t, wire::ChunkResult>> open_;
  std::optional<Evaluation> newest_;
  std::vector<Evaluation> new_;
};

class TrainingRecord {
 public:
  static constexpr size_t kMaxLosses = size_t{1} << 20;

  TrainingRecord(const Job& job, int workers, int64_t start_step);

  void add(const Commit& commit, int rank);

  int64_t samples() const { return samples_; }
  const std::vector<int64_t>& samples_per_worker() const { return samples_per_worker_; }
  // Pushes that are in the weights, and those that backup:B has dropped, at server 0.
  int64_t pushes_applied() const { return pushes_applied_; }
  int64_t pushes_dropped() const { return pushes_dropped_; }
  const std::vector<int64_t>& pushes_dropped_per_worker() const {
    return pushes_dropped_per_worker_;
  }
  // The hash of the samples of all commits that count.
  const HashSum& data_hash() const { return data_hash_; }
  // First step that is not wholly in, at server 0.
  int64_t floor() const { return floor_; }
  // Mean loss of the newest whole step; empty before the first.
  std::optional<double> newest_loss() const { return newest_loss_; }
  // Mean over the newest `steps` whole steps of this run, at most kMaxLosses of them.
  std::optional<double> mean_loss(int64_t steps) const;

 private:
  struct Step {
    std::map<int64_t, std::vector<float>> losses;  // by first micro-batch
    int64_t covered = 0;                           // micro-batches
  };
  void add_losses(int64_t step, int64_t lo, std::span<const float> losses, int64_t covered);
  bool whole(const Step& step) const;
  void close_steps();

  int64_t micro_batch_;
  int64_t leaves_;
  int64_t pushes_of_step_;  // backup:B: that make a step whole; 0: all micro-batches do
  int64_t pushes_applied_ = 0;
  int64_t pushes_dropped_ = 0;
  std::vector<int64_t> pushes_dropped_per_worker_;
  int64_t samples_ = 0;
  std::vector<int64_t> samples_per_worker_;
  HashSum data_hash_;
  int64_t floor_;
  std::map<int64_t, Step> open_;
  std::deque<double> losses_;  // of the newest whole steps
  std::optional<double> newest_loss_;
};

}  // namespace pushpull
