// Evaluation on the test split, each sample exactly once for any number of workers: the split is
// cut into fixed chunks of job.micro_batch samples, the last one padded; whoever computes a chunk
// gets the same numbers. Counts add up in any order, losses are added in chunk order by the caller.
// Not thread-safe: one object per model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "datasets/dataset.h"
#include "models/model.h"

namespace pushpull {

struct ChunkResult {
  int64_t chunk = 0;
  int64_t correct = 0;
  double loss = 0.0;  // sum, not mean, of the samples' losses
};

class Evaluator {
 public:
  // Both are borrowed and must outlive this object.
  Evaluator(const Job& job, const Dataset& dataset, Model& model);

  // Chunks 0 .. chunks() - 1 cover the test split.
  int64_t chunks() const;
  // Samples in the chunk: job.micro_batch but in the last one.
  int64_t samples(int64_t chunk) const;

  // weights: model.table().total floats.
  ChunkResult run(std::span<const float> weights, int64_t chunk);

 private:
  const Dataset& dataset_;
  Model& model_;
  const int64_t chunk_size_;
  std::vector<int64_t> indices_;
  std::vector<float> images_;    // [chunk_size_, C, H, W]
  std::vector<int32_t> labels_;  // [chunk_size_]
};

}  // namespace pushpull
