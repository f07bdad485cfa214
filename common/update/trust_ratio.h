// The trust ratio of each tensor in lamb, norm of its weights / norm of its update (You et al., arXiv
// 1904.00962), with the same bits for any slice size and number of servers (P1): squares are summed
// in double over the elements that the tensor has in each block of the flat vector, and blocks along
// the fixed tree over all blocks, as the gradient's norm (common/update/norm.h). Any thread.
//
// A tensor that weight decay leaves out has the ratio 1, as in the authors' own code, where
// exclude_from_weight_decay is also the default of exclude_from_layer_adaptation. So has a tensor
// whose weights or update are all 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/layout/tensor_table.h"
#include "common/update/optimizer_options.h"

namespace pushpull {

// Sums of squares over elements of a tensor.
struct TrustSquares {
  double weights = 0.0;
  double update = 0.0;  // of lamb's direction u
};

// A tensor's squares over a node of the block tree. Elements of other tensors count as 0.
struct TrustPart {
  int tensor = 0;  // index in the table
  Range blocks;
  TrustSquares squares;
};

// Returns true if the tensor's update is scaled by its trust ratio.
bool has_trust_ratio(const OptimizerOptions& optimizer, const TensorInfo& tensor);

// Sums a tensor's squares along the tree and appends a part for each maximal subtree of `range` that
// contains some of them.
//   squares: of blocks first_block, first_block + 1, ..., all in `range`.
//   range: blocks of a slice.
void add_trust_parts(int tensor, std::span<const TrustSquares> squares, int64_t first_block,
                     Range range, int64_t total_blocks, std::vector<TrustPart>& out);

// Returns the ratio of each tensor of the table. Throws Error(kProtocol) if the parts do not cover
// each tensor that has one exactly.
std::vector<double> trust_ratios(const TensorTable& table, const OptimizerOptions& optimizer,
                                 std::span<const TrustPart> parts);

}  // namespace pushpull
