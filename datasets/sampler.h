// Chooses the samples of a micro-batch: a pure function of the job, the data and (step, micro-batch),
// equal in every process. Not thread-safe: caches the permutation of the current epoch.
//
// `uniform`: each epoch is a permutation by seed. `weighted`: each place of an epoch draws a class,
// all equally likely, then a sample of this class, by seed and epoch. A sample may come twice or not
// at all, as with PyTorch's WeightedRandomSampler and the weights 1 / (samples of the class). In both
// an epoch has as many samples as the training split, and an incomplete last batch is dropped.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pushpull {

class Dataset;
struct Job;

class Sampler {
 public:
  // classes: of the training samples, see classes_for_sampler; empty for `uniform`.
  Sampler(const Job& job, int64_t train_size, std::span<const int32_t> classes = {});

  int64_t steps_per_epoch() const { return steps_per_epoch_; }

  // Returns the job.micro_batch sample indices of a micro-batch. Valid until the next call.
  //   step, micro_batch: 0-based; micro_batch counts within the step.
  std::span<const int64_t> indices(int64_t step, int64_t micro_batch);

 private:
  void group(std::span<const int32_t> classes);
  // Returns the sample at a place of an epoch (weighted).
  int64_t draw(uint32_t epoch, int64_t place) const;

  uint64_t seed_;
  bool shuffle_;
  bool weighted_;
  int64_t train_size_;
  int64_t global_batch_;
  int64_t micro_batch_;
  int64_t steps_per_epoch_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;  // uniform: of epoch_; weighted: the samples, class by class
  std::vector<int64_t> ends_;   // weighted: the end of each class in order_; no class is empty
  std::vector<int64_t> drawn_;  // weighted: [micro_batch]
};

// Returns the class of each training sample, the field `class` or `label`, if the job's sampler is
// weighted; else nothing. Reads all training samples. Throws Error(kUsage) if they have no class,
// and the dataset's errors.
std::vector<int32_t> classes_for_sampler(const Job& job, const Dataset& dataset);

}  // namespace pushpull
