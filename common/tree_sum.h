// Sums partial gradients along the fixed tree, block by block, so that the sum stays in cache. One
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/codec_map.h"
#include "common/fixed_tree.h"

namespace pushpull {

// The sum over the micro-batches `range`, of as many elements as its user says. Borrowed.
struct TreePart {
  Range range;
  const float* floats = nullptr;      // where a codec encodes them: the slice as it was sent, which
  const SliceCodec* codec = nullptr;  // fits (SliceCodec); null: floats
};

class TreeSum {
 public:
  static constexpr int64_t kStride = 4096;  // elements summed at once

  // parts: one alone, or ascending nodes that cover the tree over `leaves` leaves; throws
  // Error(kProtocol) otherwise.
  TreeSum(std::vector<TreePart> parts, int64_t leaves);

  // The sum over elements [lo, lo + n), n at most kStride. Valid until the next call. Where there
  // is a codec they are whole blocks.
  const float* block(int64_t lo, int64_t n);

 private:
  float* scratch(size_t depth);

  std::vector<TreePart> parts_;
  std::vector<int> merges_;
  std::vector<std::vector<float>> scratch_;  // by place on the stack
  std::vector<const float*> stack_;
};

}  // namespace pushpull
