// The progress of training, counted from the commits of server 0: complete steps, samples, losses.
// Part of the coordinator's state machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/io/run_counts.h"
#include "common/job/barriers.h"
#include "ps/server/commit.h"

namespace pushpull {

struct Job;

// The pushes of one process in this term, as counted by server 0.
struct PushedWork {
  int64_t pushes = 0;  // contained in the weights
  int64_t step = 0;    // after the newest step of these pushes
  int64_t clock = 0;   // after the newest step of all its pushes
  int64_t staleness_sum = 0;
  int64_t staleness_max = 0;
};

// Counts the pushes, samples and losses that the weights contain, as server 0 commits them.
class CommittedWork {
 public:
  static constexpr size_t kMaxLosses = size_t{1} << 20;

  //   workers: number at the start of the job; more may join.
  //   barriers: of the run; borrowed.
  //   counts: of the run before the first step of `barriers`.
  CommittedWork(const Job& job, int workers, const Barriers& barriers, RunCounts counts = {});

  void add(const Commit& commit, int rank);

  // Counts of the pushes in the weights, and of those dropped by backup:B, at server 0.
  const RunCounts& counts() const { return counts_; }
  // Returns the counts of the steps before `step` if it is one of the newest checkpoints that the
  // floor has reached, else null.
  const RunCounts* counts_at(int64_t step) const;
  // Returns the samples of this process in the weights, in earlier terms of the run too. All workers
  // of a group have its samples.
  int64_t samples_of(uint64_t incarnation) const;
  // Work in this term by incarnation, former workers included, since ranks are reused.
  const std::map<uint64_t, PushedWork>& by_process() const { return by_process_; }
  // The first step that is incomplete at server 0.
  int64_t floor() const { return floor_; }
  // Returns the newest complete step as workers hear of it.
  wire::Progress progress() const;
  // Mean loss of the newest complete step; empty before the first, or if it is not known.
  std::optional<double> newest_loss() const { return newest_loss_; }
  // Returns the mean over the newest `steps` complete steps of this run with a known loss, at most
  // kMaxLosses.
  std::optional<double> mean_loss(int64_t steps) const;

 private:
  struct Step {
    std::map<int64_t, std::vector<float>> losses;  // by first micro-batch
    int64_t covered = 0;                           // micro-batches covered
    RunCounts counts;                              // pushes that end with this step
  };
  void add_to_process(uint64_t incarnation, const Commit& commit);
  void add_losses(int64_t step, int64_t lo, std::span<const float> losses, int64_t covered);
  bool whole(const Step& step) const;
  void close_steps();
  void note_loss(const Step& step);
  void keep_counts();

  int64_t micro_batch_;
  int64_t leaves_;
  int64_t pushes_of_step_;  // pushes of a complete step; 0 if all micro-batches must be covered
  const Barriers& barriers_;
  RunCounts counts_;                   // over all commits
  RunCounts whole_;                    // over the steps before the floor
  std::map<int64_t, RunCounts> kept_;  // by barrier
  std::map<uint64_t, PushedWork> by_process_;
  int64_t floor_;
  std::map<int64_t, Step> open_;
  std::deque<double> losses_;  // of the newest complete steps
  std::optional<double> newest_loss_;
};

}  // namespace pushpull
