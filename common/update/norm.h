// The global norm of a gradient, with the same bits for any slice size and number of servers (P1):
// squares are summed in double over fixed blocks of kBlockElements, and blocks along the fixed
// tree. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/layout/fixed_tree.h"

namespace pushpull {

// Returns the sum of squares of x[0..n): eight running sums, which are then added in a fixed order.
// n is at most kBlockElements.
double block_squares(const float* x, int64_t n);

struct NormPart {
  Range blocks;  // a node of the block tree
  double squares = 0.0;
};

// Sums per-block squares along the tree and returns one part per maximal subtree.
//   squares: of blocks first_block, first_block + 1, ...
std::vector<NormPart> norm_parts(std::span<const double> squares, int64_t first_block,
                                 int64_t total_blocks);

// Sums the parts along the tree. Throws Error(kProtocol) if they do not cover it exactly.
double total_squares(std::vector<NormPart> parts, int64_t total_blocks);

// Returns the factor that clips the gradient: clip / (norm + 1e-6), at most 1 (PyTorch's
// clip_grad_norm_).
double clip_factor(double norm, double clip);

}  // namespace pushpull
