// The results of evaluations, collected chunk by chunk from workers. Part of the coordinator's
// state machine. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/layout/metric.h"
#include "common/net/message.h"

namespace pushpull {

struct Evaluation {
  int64_t step = 0;
  std::vector<HeadResult> heads;  // in the order of the declaration

  friend bool operator==(const Evaluation&, const Evaluation&) = default;
};

// Sums the results in the order of the chunks, so that an evaluation does not depend on which
// worker computed which chunk.
class Evaluations {
 public:
  // heads: of the model.
  Evaluations(int64_t test_samples, int64_t micro_batch, std::vector<HeadInfo> heads);

  int64_t chunks() const { return chunks_; }
  const std::vector<HeadInfo>& heads() const { return heads_; }
  // Adds a result with the sums of all heads. Returns the evaluation if this completes it.
  std::optional<Evaluation> add(int64_t step, const wire::ChunkResult& result);
  bool complete(int64_t step) const;
  const std::optional<Evaluation>& newest() const { return newest_; }
  // Returns the evaluations completed since the last call, in order.
  std::vector<Evaluation> take_new() { return std::exchange(new_, {}); }

 private:
  int64_t chunks_;
  std::vector<HeadInfo> heads_;
  std::map<int64_t, std::map<int64_t, wire::ChunkResult>> open_;
  std::optional<Evaluation> newest_;
  std::vector<Evaluation> new_;
};

}  // namespace pushpull
