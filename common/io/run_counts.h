// What a checkpoint records of its run besides weights, so that a run that returns to it continues
// from there: counts of pushes and samples, a hash that identifies the samples, and the best
// evaluation. Plain data; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/hash_sum.h"

namespace pushpull {

// The best value of one measure over the evaluations of a run so far. Each checkpoint contains it, so
// that a resumed run goes on with it. Plain data.
struct EvaluationRecord {
  std::string measure;     // as StopWhen::measure; "" if the job follows none
  int64_t step = 0;        // of the newest evaluation that counts; 0 if there is none
  int64_t best_step = 0;   // of the best one; 0 if there is none
  double best = 0.0;       // its value
  int64_t since_best = 0;  // evaluations after it

  friend bool operator==(const EvaluationRecord&, const EvaluationRecord&) = default;
};

struct RunCounts {
  int64_t samples = 0;
  int64_t pushes_applied = 0;
  int64_t pushes_dropped = 0;                       // backup:B
  int64_t bad_gradients = 0;                        // micro-batches that count as zeros
  std::vector<int64_t> samples_per_worker;          // by rank
  std::map<uint64_t, int64_t> samples_per_process;  // by the worker's incarnation
  std::vector<int64_t> pushes_dropped_per_worker;
  HashSum data_hash;                         // sum of the hashes of all samples
  std::optional<double> learning_rate = {};  // lr-schedule = external: of the newest step

  friend bool operator==(const RunCounts&, const RunCounts&) = default;
};

}  // namespace pushpull
