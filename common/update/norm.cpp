#include "common/update/norm.h"

#include <algorithm>
#include <array>

#include "common/base/error.h"
#include "common/base/simd.h"

namespace pushpull {

PUSHPULL_SIMD double block_squares(const float* x, int64_t n) {
  constexpr int64_t kSums = 8;
  std::array<double, kSums> sums{};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) {
      const double value = x[i + k];
      sums[static_cast<size_t>(k)] += value * value;
    }
  }
  for (; i < n; ++i) {
    const double value = x[i];
    sums[static_cast<size_t>(i % kSums)] += value * value;
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

namespace {

double tree_sum(std::span<const double> squares, int64_t first_block, Range node) {
  if (node.size() == 1) return squares[static_cast<size_t>(node.lo - first_block)];
  const int64_t middle = split_point(node);
  return tree_sum(squares, first_block, {node.lo, middle}) +
         tree_sum(squares, first_block, {middle, node.hi});
}

}  // namespace

std::vector<NormPart> norm_parts(std::span<const double> squares, int64_t first_block,
                                 int64_t total_blocks) {
  std::vector<NormPart> parts;
  const Range range{first_block, first_block + static_cast<int64_t>(squares.size())};
  for (const Range& node : maximal_subtrees(range, total_blocks)) {
    parts.push_back({node, tree_sum(squares, first_block, node)});
  }
  return parts;
}

double total_squares(std::vector<NormPart> parts, int64_t total_blocks) {
  std::sort(parts.begin(), parts.end(),
            [](const NormPart& a, const NormPart& b) { return a.blocks < b.blocks; });
  std::vector<Range> nodes;
  nodes.reserve(parts.size());
  for (const NormPart& part : parts) nodes.push_back(part.blocks);
  const std::vector<int> merges = merge_plan(nodes, total_blocks);
  if (merges.empty()) {
    throw Error(ErrorCode::kProtocol, "[norm] the parts of a norm do not cover it");
  }
  std::vector<double> stack;
  for (size_t i = 0; i < parts.size(); ++i) {
    stack.push_back(parts[i].squares);
    for (int m = 0; m < merges[i]; ++m) {
      const double right = stack.back();
      stack.pop_back();
      stack.back() += right;
    }
  }
  return stack.front();
}

double clip_factor(double norm, double clip) {
  constexpr double kEpsilon = 1e-6;
  return std::min(1.0, clip / (norm + kEpsilon));
}

}  // namespace pushpull
