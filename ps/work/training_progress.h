// How far training has come, as the commits of server 0 tell it: whole steps, samples, losses. Part
// of the coordinator's state machine; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/base/hash_sum.h"
#include "common/job/job.h"
#include "ps/aggregation/commit.h"

namespace pushpull {

// What one process has pushed, at server 0.
struct PushedWork {
  int64_t samples = 0;  // that are in the weights
  int64_t pushes = 0;   // that are
  int64_t step = 0;     // behind the newest step of these
  int64_t clock = 0;    // behind the newest step of all that it has pushed
  int64_t staleness_sum = 0;
  int64_t staleness_max = 0;
};

// The pushes, samples and losses that are in the weights, as server 0 commits them.
class TrainingProgress {
 public:
  static constexpr size_t kMaxLosses = size_t{1} << 20;

  TrainingProgress(const Job& job, int workers, int64_t start_step);

  void add(const Commit& commit, int rank);

  int64_t samples() const { return samples_; }
  const std::vector<int64_t>& samples_per_worker() const { return samples_per_worker_; }
  // By incarnation: of workers that are gone, too, since ranks are used again.
  const std::map<uint64_t, PushedWork>& by_process() const { return by_process_; }
  // Pushes that are in the weights, and those that backup:B has dropped, at server 0.
  int64_t pushes_applied() const { return pushes_applied_; }
  int64_t pushes_dropped() const { return pushes_dropped_; }
  const std::vector<int64_t>& pushes_dropped_per_worker() const {
    return pushes_dropped_per_worker_;
  }
  // The sum of the hashes of all samples that are in the weights.
  const HashSum& data_hash() const { return data_hash_; }
  // The first step that is not whole at server 0.
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
  void add_to_process(const Commit& commit, int64_t samples);
  void add_losses(int64_t step, int64_t lo, std::span<const float> losses, int64_t covered);
  bool whole(const Step& step) const;
  void close_steps();

  int64_t micro_batch_;
  int64_t leaves_;
  int64_t pushes_of_step_;  // that make a step whole; 0: every micro-batch must be in
  int64_t pushes_applied_ = 0;
  int64_t pushes_dropped_ = 0;
  std::vector<int64_t> pushes_dropped_per_worker_;
  int64_t samples_ = 0;
  std::vector<int64_t> samples_per_worker_;
  std::map<uint64_t, PushedWork> by_process_;
  HashSum data_hash_;
  int64_t floor_;
  std::map<int64_t, Step> open_;
  std::deque<double> losses_;  // of the newest whole steps
  std::optional<double> newest_loss_;
};

}  // namespace pushpull
