// Sums partial gradients along the fixed tree, block by block, so that sums stay in the cache. One
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/codec/codec_map.h"
#include "common/layout/fixed_tree.h"
#include "common/update/optimizer.h"

namespace pushpull {

// The sum of the gradients of the micro-batches `range`, of a length that the caller knows.
// Borrowed.
struct TreePart {
  Range range;
  const float* floats = nullptr;      // f32; with a codec, the encoded slice
  const SliceCodec* codec = nullptr;  // layout of an encoded slice that `fits`; null if plain
};

// The order in which parts are summed (merge_plan). Recomputed only when the parts differ from the
// last ones, since slices of one step mostly arrive in the same parts.
class MergePlan {
 public:
  void begin() { nodes_.clear(); }
  void add(Range node) { nodes_.push_back(node); }
  // Accepts a single part, or ascending nodes that cover the tree over `leaves` leaves. Throws
  // Error(kProtocol) otherwise.
  void make(int64_t leaves);
  const std::vector<int>& merges() const { return merges_; }

 private:
  std::vector<Range> nodes_;
  std::vector<Range> planned_;  // the nodes that merges_ belongs to
  int64_t leaves_ = 0;
  std::vector<int> merges_;
};

class TreeSum {
 public:
  static constexpr int64_t kStride = 4096;  // elements summed at once

  // parts, leaves: see MergePlan.
  TreeSum(std::vector<TreePart> parts, int64_t leaves);
  // Holds no parts until `reset`.
  TreeSum() = default;

  // Reuses the object for other parts; allocates nothing while steps are alike.
  void begin() { parts_.clear(); }
  void add(TreePart part) { parts_.push_back(part); }
  void reset(int64_t leaves);

  // Returns the sum over elements [lo, lo + n), n at most kStride; valid until the next call. With
  // a codec the elements must be whole blocks.
  const float* block(int64_t lo, int64_t n);
  // Returns the same without its last addition, so that exactly two parts are read in place.
  SumHalves halves(int64_t lo, int64_t n);

 private:
  float* scratch(size_t depth);

  std::vector<TreePart> parts_;
  MergePlan plan_;
  std::vector<std::vector<float>> scratch_;  // by depth of the stack
  std::vector<const float*> stack_;
};

}  // namespace pushpull
