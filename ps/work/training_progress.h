// How far training has come, as the commits of server 0 tell it: whole steps, samples, losses. Part
// of the coordinator's state machine; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/io/run_counts.h"
#include "common/job/barriers.h"
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

  // workers: that the job starts with; more may come.
  // counts: of the run before the first step of `barriers`.
  TrainingProgress(const Job& job, int workers, const Barriers& barriers, RunCounts counts = {});

  void add(const Commit& commit, int rank);
  // The run stops with the checkpoint at `step`, which the floor has not reached.
  void stop_at(int64_t step) { barriers_.stop_step = step; }
  // A checkpoint will be at `step`, too, which the floor has not reached.
  void choose(int64_t step) { barriers_.choose(step); }

  // Of pushes that are in the weights, and of those that backup:B has dropped, at server 0.
  const RunCounts& counts() const { return counts_; }
  // Of the steps before `step`, one of the newest checkpoints' barriers that the floor has reached.
  // Null: of any other step.
  const RunCounts* counts_at(int64_t step) const;
  // By incarnation: of workers that are gone, too, since ranks are used again. Of this term.
  const std::map<uint64_t, PushedWork>& by_process() const { return by_process_; }
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
    RunCounts counts;                              // of pushes that end with this step
  };
  void add_to_process(const Commit& commit, int64_t samples);
  void add_losses(int64_t step, int64_t lo, std::span<const float> losses, int64_t covered);
  bool whole(const Step& step) const;
  void close_steps();
  void keep_counts();

  int64_t micro_batch_;
  int64_t leaves_;
  int64_t pushes_of_step_;  // that make a step whole; 0: every micro-batch must be in
  Barriers barriers_;
  RunCounts counts_;                   // of all commits
  RunCounts whole_;                    // of the steps before the floor
  std::map<int64_t, RunCounts> kept_;  // by barrier
  std::map<uint64_t, PushedWork> by_process_;
  int64_t floor_;
  std::map<int64_t, Step> open_;
  std::deque<double> losses_;  // of the newest whole steps
  std::optional<double> newest_loss_;
};

}  // namespace pushpull
