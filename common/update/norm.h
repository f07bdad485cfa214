// The global norm of a gradient with the same bits wherever slices and servers begin (P1): squares
// are summed in double over fixed blocks of kBlockElements, and blocks along the fixed tree. Any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/layout/slice_map.h"

namespace pushpull {

// Sum of squares of x[0..n): eight running sums, then added in fixed order. n is at most
// kBlockElements.
double block_squares(const float* x, int64_t n);

struct NormPart {
  Range blocks;  // a node of the block tree
  double squares = 0.0;
};

// Sums per-block squares (of blocks `first_block`..) along the tree, one part for each maximal
// subtree.
std::vector<NormPart> norm_parts(std::span<const double> squares, int64_t first_block,
                                 int64_t total_blocks);

// Finishes the tree. Throws Error(kProtocol) when the parts do not cover it exactly.
double total_squares(std::vector<NormPart> parts, int64_t total_blocks);

// What the gradient is multiplied by: clip / norm where norm > clip, else 1 (as PyTorch's
// clip_grad_norm_: clip / (norm + 1e-6)).
double clip_factor(double norm, double clip);

}  // namespace pushpull
