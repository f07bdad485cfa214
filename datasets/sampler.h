// Which samples a micro-batch holds: a pure function of the job and (step, micro-batch), equal in
// every process. Each epoch is a permutation by seed; its last incomplete batch is dropped. Not
// thread-safe: keeps the permutation of the current epoch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/job/job.h"

namespace pushpull {

class Sampler {
 public:
  Sampler(const Job& job, int64_t train_size);

  int64_t steps_per_epoch() const { return steps_per_epoch_; }

  // The job.micro_batch indices of micro-batch `micro_batch` (0-based) of step `step` (0-based).
  // Valid until the next call.
  std::span<const int64_t> indices(int64_t step, int64_t micro_batch);

 private:
  uint64_t seed_;
  bool shuffle_;
  int64_t train_size_;
  int64_t global_batch_;
  int64_t micro_batch_;
  int64_t steps_per_epoch_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;
};

}  // namespace pushpull
