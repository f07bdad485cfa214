#include "common/update/tree_sum.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/simd.h"

namespace pushpull {

namespace {

PUSHPULL_SIMD void add_floats(const float* a, const float* b, int64_t n, float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

}  // namespace

void MergePlan::make(int64_t leaves) {
  if (!merges_.empty() && leaves == leaves_ && nodes_ == planned_) return;
  merges_ = nodes_.size() == 1 ? std::vector<int>{0} : merge_plan(nodes_, leaves);
  if (merges_.empty()) {
    throw Error(ErrorCode::kProtocol, "[push] the partial sums do not cover the range exactly");
  }
  planned_ = nodes_;
  leaves_ = leaves;
}

TreeSum::TreeSum(std::vector<TreePart> parts, int64_t leaves) : parts_(std::move(parts)) {
  reset(leaves);
}

void TreeSum::reset(int64_t leaves) {
  plan_.begin();
  for (const TreePart& part : parts_) plan_.add(part.range);
  plan_.make(leaves);
}

float* TreeSum::scratch(size_t depth) {
  if (scratch_.size() <= depth) scratch_.resize(depth + 1);
  scratch_[depth].resize(kStride);
  return scratch_[depth].data();
}

SumHalves TreeSum::halves(int64_t lo, int64_t n) {
  PP_ASSERT(n <= kStride);
  stack_.clear();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const TreePart& part = parts_[i];
    if (part.codec != nullptr && !part.codec->plain()) {
      float* decoded = scratch(stack_.size());
      part.codec->decode(reinterpret_cast<const std::byte*>(part.floats), lo, n, decoded);
      stack_.push_back(decoded);
    } else {
      stack_.push_back(part.floats + lo);
    }
    for (int m = 0; m < plan_.merges()[i]; ++m) {
      const float* right = stack_.back();
      stack_.pop_back();
      const bool last = i + 1 == parts_.size() && stack_.size() == 1;
      if (last) return {stack_.back(), right};
      float* out = scratch(stack_.size() - 1);
      add_floats(stack_.back(), right, n, out);
      stack_.back() = out;
    }
  }
  return stack_.front();
}

const float* TreeSum::block(int64_t lo, int64_t n) {
  const SumHalves sum = halves(lo, n);
  if (sum.right == nullptr) return sum.left;
  float* out = scratch(0);  // may hold the left half
  add_floats(sum.left, sum.right, n, out);
  return out;
}

}  // namespace pushpull
