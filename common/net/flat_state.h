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
  std::vector<std::vector<Payload>> slices = {};
};

// Copies a snapshot into whole vectors; takes as long as copying the model. Any thread.
inline FlatState flatten(GatheredState gathered) {
  FlatState out;
  out.step = gathered.step;
  out.updates = gathered.updates;
  std::vector<std::vector<float>*> vectors{&out.weights};
  if (!gathered.slices.empty()) out.slots.resize(gathered.slices.front().size() - 1);
  for (std::vector<float>& slot : out.slots) vectors.push_back(&slot);
  size_t total = 0;
  for (const auto& slice : gathered.slices) total += slice.front().float_count();
  for (std::vector<float>* vector : vectors) vector->reserve(total);
  for (auto& slice : gathered.slices) {
    for (size_t v = 0; v < vectors.size(); ++v) {
      const float* first = slice[v].floats();
      vectors[v]->insert(vectors[v]->end(), first, first + slice[v].float_count());
    }
    slice.clear();  // so that memory never holds two whole copies
  }
  return out;
}

}  // namespace pushpull
