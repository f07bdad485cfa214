// Prefetches micro-batches on its own threads, so that reading overlaps with compute. Call it from
// one thread (the trainer's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/layout/fields.h"
#include "common/layout/fixed_tree.h"
#include "datasets/dataset.h"
#include "datasets/sampler.h"

namespace pushpull {

struct MicroBatch {
  int64_t step = -1;
  int64_t index = -1;            // micro-batch of the step
  int64_t epoch = 0;             // of the step
  std::vector<int64_t> indices;  // [micro_batch], indices in the training split
  std::vector<float> block;      // all fields, see BatchLayout

  // same_weights: as in Samples.
  Samples view(bool same_weights = false) const {
    return {step, index, indices, block, epoch, same_weights};
  }
};

class Loader {
 public:
  Loader(const Job& job, const Dataset& dataset);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Announces a micro-batch that `get` will request; a thread of the loader reads announced ones in
  // order, or several threads if the data set decodes. It keeps only the newest kMaxHints that were not
  // fetched: announce no further ahead. Small micro-batches that need no decoding are read by `get`,
  // which is faster than waking a thread.
  static constexpr size_t kMaxHints = 8;
  void hint(int64_t step, int64_t index);

  // Announces micro-batches of a step to a data set that reads by itself; does nothing for others.
  void announce(int64_t step, std::span<const Range> micro_batches);

  // Returns true if `get` would not wait: the micro-batch was read, or is small enough to be read
  // by `get`.
  bool ready(int64_t step, int64_t index) const;

  // Returns the micro-batch, prefetched or read now. Valid until the next call. Rethrows the
  // dataset's errors.
  const MicroBatch& get(int64_t step, int64_t index);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pushpull
