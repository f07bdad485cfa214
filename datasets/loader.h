// Prefetches micro-batches on one thread so that reading overlaps with compute. `next` is called by
// one thread (the trainer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "datasets/dataset.h"
#include "datasets/sampler.h"

namespace pushpull {

struct MicroBatch {
  int64_t step = -1;
  int64_t index = -1;            // micro-batch of the step
  std::vector<float> images;     // [micro_batch, C, H, W]
  std::vector<int32_t> labels;   // [micro_batch]
  std::vector<int64_t> indices;  // [micro_batch], of the samples in the training split
};

class Loader {
 public:
  Loader(const Job& job, const Dataset& dataset);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Says what will be asked for soon; read in that order on the loader's thread. The newest
  // kMaxHints that were not taken up are kept: hint no further ahead. Small micro-batches are left
  // to `get`, which reads them sooner than a thread wakes up.
  static constexpr size_t kMaxHints = 8;
  void hint(int64_t step, int64_t index);

  // `get` would not wait: the micro-batch is here, or is read sooner than a thread wakes up.
  bool ready(int64_t step, int64_t index) const;

  // The micro-batch, from the prefetched ones or read now. Valid until the next call. An error of
  // the dataset surfaces here.
  const MicroBatch& get(int64_t step, int64_t index);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pushpull
