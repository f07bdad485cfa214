// Sums partial gradients along the fixed tree, block by block, so that the sum stays in cache. One
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/codec/codec_map.h"
#include "common/layout/fixed_tree.h"
#include "common/update/optimizer.h"

namespace pushpull {

// The sum over the micro-batches `range`, of as many elements as its user says. Borrowed.
struct TreePart {
  Range range;
  const float* floats = nullptr;      // where a codec encodes them: the slice as it was sent, which
  const SliceCodec* codec = nullptr;  // fits (SliceCodec); null: floats
};

// How parts are summed, see merge_plan; made anew only where they are cut in another way than those
// before: slices of one step mostly come in the same parts.
class MergePlan {
 public:
  void begin() { nodes_.clear(); }
  void add(Range node) { nodes_.push_back(node); }
  // One part alone, or ascending nodes that cover the tree over `leaves` leaves; throws
  // Error(kProtocol) otherwise.
  void make(int64_t leaves);
  const std::vector<int>& merges() const { return merges_; }

 private:
  std::vector<Range> nodes_;
  std::vector<Range> planned_;  // nodes that merges_ is for
  int64_t leaves_ = 0;
  std::vector<int> merges_;
};

class TreeSum {
 public:
  static constexpr int64_t kStride = 4096;  // elements summed at once

  // parts, leaves: see MergePlan.
  TreeSum(std::vector<TreePart> parts, int64_t leaves);
  // Without parts until `reset`.
  TreeSum() = default;

  // The same for other parts: in a steady step nothing is allocated.
  void begin() { parts_.clear(); }
  void add(TreePart part) { parts_.push_back(part); }
  void reset(int64_t leaves);

  // The sum over elements [lo, lo + n), n at most kStride. Valid until the next call. Where there
  // is a codec they are whole blocks.
  const float* block(int64_t lo, int64_t n);
  // The same without its last addition, so that two parts alone are read where they lie.
  SumHalves halves(int64_t lo, int64_t n);

 private:
  float* scratch(size_t depth);

  std::vector<TreePart> parts_;
  MergePlan plan_;
  std::vector<std::vector<float>> scratch_;  // by place on the stack
  std::vector<const float*> stack_;
};

}  // namespace pushpull
