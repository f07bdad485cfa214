// The weights and the optimizer's state of a whole model: as flat vectors, and as the slices that
// servers send. Plain data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/net/message.h"

namespace pushpull {

// Weights and optimizer state of the whole model.
struct FlatState {
  int64_t step = 0;
  int64_t updates = 0;
  std::vector<float> weights;
  std::vector<std::vector<float>> slots;  // optimizer state
};

// The same, borrowed.
struct FlatStateView {
  int64_t step = 0;
  int64_t updates = 0;
  std::span<const float> weights;
  std::vector<std::span<const float>> slots;
};

// A snapshot as received: the payloads of each slice in order, weights first, then state vectors. A
// slice that was not requested has none.
struct GatheredState {
  int64_t step = 0;
  int64_t updates = 0;
  std::vector<std::vector<Payload>> slices;
};

// Copies a snapshot into whole vectors; takes as long as copying the model. Any thread.
FlatState flatten(GatheredState gathered);

}  // namespace pushpull
