// The samples of a micro-batch at random.
#pragma once

#include <random>
#include <vector>

#include "common/layout/fields.h"
#include "models/graph.h"

namespace pushpull {

inline std::vector<float> random_block(const Graph& graph, std::mt19937& random) {
  const BatchLayout layout(graph.fields, graph.samples);
  std::vector<float> block(layout.words());
  for (size_t f = 0; f < layout.fields(); ++f) {
    const FieldInfo& field = graph.fields.fields[f];
    float* words = block.data() + layout.offset(f);
    for (size_t i = 0; i < layout.size(f); ++i) {
      if (field.type == FieldType::kInt) {
        as_ints(words)[i] = static_cast<int32_t>(random() % static_cast<uint32_t>(field.limit));
      } else {
        words[i] = static_cast<float>(random() % 1000) / 1000.0F;
      }
    }
  }
  return block;
}

}  // namespace pushpull
