#include "common/update/trust_ratio.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "common/layout/slice_map.h"
#include "common/update/norm.h"

namespace pushpull {

namespace {

Range blocks_of(const TensorInfo& tensor) {
  return {tensor.offset / kBlockElements,
          (tensor.offset + tensor.size + kBlockElements - 1) / kBlockElements};
}

// Blocks outside of `have` count as 0, which adds exactly.
TrustSquares tree_sum(std::span<const TrustSquares> squares, Range have, Range node) {
  if (node.hi <= have.lo || node.lo >= have.hi) return {};
  if (node.size() == 1) return squares[static_cast<size_t>(node.lo - have.lo)];
  const int64_t middle = split_point(node);
  const TrustSquares left = tree_sum(squares, have, {node.lo, middle});
  const TrustSquares right = tree_sum(squares, have, {middle, node.hi});
  return {left.weights + right.weights, left.update + right.update};
}

// parts: of the tensor; they leave blocks out only before and after its own.
double ratio_of(const TensorInfo& tensor, std::vector<TrustPart> parts, int64_t total_blocks) {
  std::ranges::sort(parts, {}, [](const TrustPart& part) { return part.blocks; });
  const Range own = blocks_of(tensor);
  if (parts.empty() || parts.front().blocks.lo > own.lo || parts.back().blocks.hi < own.hi) {
    throw Error(ErrorCode::kProtocol,
                "[norm] the parts of the norms of '" + tensor.name + "' do not cover it");
  }
  std::vector<NormPart> weights;
  std::vector<NormPart> update;
  const auto add_zeros = [&](Range blocks) {
    if (blocks.lo >= blocks.hi) return;
    for (const Range& node : maximal_subtrees(blocks, total_blocks)) {
      weights.push_back({node, 0.0});
      update.push_back({node, 0.0});
    }
  };
  add_zeros({0, parts.front().blocks.lo});
  add_zeros({parts.back().blocks.hi, total_blocks});
  for (const TrustPart& part : parts) {
    weights.push_back({part.blocks, part.squares.weights});
    update.push_back({part.blocks, part.squares.update});
  }
  const double w = std::sqrt(total_squares(std::move(weights), total_blocks));
  const double u = std::sqrt(total_squares(std::move(update), total_blocks));
  return w > 0.0 && u > 0.0 ? w / u : 1.0;
}

}  // namespace

bool has_trust_ratio(const OptimizerOptions& optimizer, const TensorInfo& tensor) {
  if (!scales_by_tensor(optimizer.kind) || tensor.rule != UpdateRule::kOptimizer) return false;
  if (tensor.weight_decay) return *tensor.weight_decay != 0.0;
  return !optimizer.no_decay.contains(tensor);
}

void add_trust_parts(int tensor, std::span<const TrustSquares> squares, int64_t first_block,
                     Range range, int64_t total_blocks, std::vector<TrustPart>& out) {
  const Range have{first_block, first_block + std::ssize(squares)};
  for (const Range& node : maximal_subtrees(range, total_blocks)) {
    if (node.hi <= have.lo || node.lo >= have.hi) continue;
    out.push_back({tensor, node, tree_sum(squares, have, node)});
  }
}

std::vector<double> trust_ratios(const TensorTable& table, const OptimizerOptions& optimizer,
                                 std::span<const TrustPart> parts) {
  const int64_t blocks = (table.total + kBlockElements - 1) / kBlockElements;
  std::vector<std::vector<TrustPart>> by_tensor(table.tensors.size());
  for (const TrustPart& part : parts) {
    if (part.tensor < 0 || part.tensor >= std::ssize(by_tensor)) {
      throw Error(ErrorCode::kProtocol, "[norm] there is no tensor " + std::to_string(part.tensor));
    }
    by_tensor[static_cast<size_t>(part.tensor)].push_back(part);
  }
  std::vector<double> ratios;
  for (size_t t = 0; t < by_tensor.size(); ++t) {
    const TensorInfo& tensor = table.tensors[t];
    const bool scaled = has_trust_ratio(optimizer, tensor) && tensor.size > 0;
    ratios.push_back(scaled ? ratio_of(tensor, std::move(by_tensor[t]), blocks) : 1.0);
  }
  return ratios;
}

}  // namespace pushpull
