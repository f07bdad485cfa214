// Chooses the samples of a micro-batch: a pure function of the job and (step, micro-batch), equal
// in every process. Each epoch is a permutation by seed; an incomplete last batch is dropped. Not
// thread-safe: caches the permutation of the current epoch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pushpull {

struct Job;

class Sampler {
 public:
  Sampler(const Job& job, int64_t train_size);

  int64_t steps_per_epoch() const { return steps_per_epoch_; }

  // Returns the job.micro_batch sample indices of a micro-batch. Valid until the next call.
  //   step, micro_batch: 0-based; micro_batch counts within the step.
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
