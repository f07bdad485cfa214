// The binary tree over n leaves along which all sums run (P1): a node [lo, hi) with more than one
// leaf splits at lo + the largest power of two below hi - lo. The shape is that of Merkle trees in
// RFC 6962, section 2.1. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace pushpull {

// Leaves [lo, hi).
struct Range {
  int64_t lo = 0;
  int64_t hi = 0;
  int64_t size() const { return hi - lo; }
  // clang-tidy 14 takes the zero in the compiler's own comparison for a null pointer
  friend auto operator<=>(const Range&, const Range&) = default;  // NOLINT(modernize-use-nullptr)
};

// Returns the leaf at which a node of at least two leaves splits: the first leaf of its right
// child.
int64_t split_point(Range node);

// Returns true if `range` is a node of the tree over `leaves` leaves.
bool is_node(Range range, int64_t leaves);

// Returns share `index` of `shares`: contiguous leaves; sizes differ by at most one.
Range share_range(int64_t index, int64_t shares, int64_t leaves);

// Returns the smallest set of nodes of the tree over `leaves` leaves that covers `range`, in order.
std::vector<Range> maximal_subtrees(Range range, int64_t leaves);

// Returns how to sum a covering set of nodes with a stack: after pushing node i, replace the two
// top entries (left, right) by left + right, `merges[i]` times. The one entry left at the end is
// the sum of the root. Returns an empty vector if `nodes` (ascending) do not exactly cover [0,
// leaves) with nodes of the tree.
std::vector<int> merge_plan(const std::vector<Range>& nodes, int64_t leaves);

}  // namespace pushpull
