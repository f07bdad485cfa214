// Chooses the samples of a micro-batch: a pure function of the job, the data and (step, micro-batch),
// equal in every process. Not thread-safe: caches the permutation of the current epoch.
//
// `uniform`: each epoch is a permutation by seed. `weighted`: each place of an epoch draws a class,
// all equally likely, then a sample of this class, by seed and epoch. A sample may come twice or not
// at all, as with PyTorch's WeightedRandomSampler and the weights 1 / (samples of the class). If the
// samples have weights of their own, a place draws one by these. In all an epoch has as many samples as
// the training split, and an incomplete last batch is dropped.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pushpull {

class Dataset;
struct Job;

class Sampler {
 public:
  // Throws as classes_for_sampler.
  Sampler(const Job& job, const Dataset& dataset);
  // classes: of the training samples, see classes_for_sampler; empty for `uniform`.
  // weights: of the training samples, in place of classes: finite, from 0, with a finite sum above 0.
  Sampler(const Job& job, int64_t train_size, std::span<const int32_t> classes = {},
          std::span<const double> weights = {});

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
  std::vector<int64_t> order_;  // shuffled: of epoch_; classes: the samples, class by class
  std::vector<int64_t> ends_;   // classes: the end of each in order_; none is empty
  std::vector<double> sums_;    // weights: of each sample and those before it
  std::vector<int64_t> drawn_;  // else: [micro_batch]
};

// Returns the class of each training sample, the field `class` or `label`, if the job's sampler is
// weighted and the samples have no weights of their own; else nothing. Reads all training samples. Throws Error(kUsage) if they have no class,
// and the dataset's errors.
std::vector<int32_t> classes_for_sampler(const Job& job, const Dataset& dataset);

}  // namespace pushpull
