// The one binary tree over n leaves along which everything is summed (P1): a node [lo, hi) with
// more than one leaf splits at lo + the largest power of two below hi - lo. Pure functions; any
// thread. The shape is that of Merkle trees in RFC 6962, section 2.1.
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

// Where a node of at least two leaves splits.
int64_t split_point(Range node);

// True when `range` is a node of the tree over `leaves` leaves.
bool is_node(Range range, int64_t leaves);

// Share `index` of `shares`: contiguous leaves; sizes differ by at most one.
Range share_range(int64_t index, int64_t shares, int64_t leaves);

// The smallest set of nodes of the tree over `leaves` leaves that covers `range`, in order.
std::vector<Range> maximal_subtrees(Range range, int64_t leaves);

// How to sum a covering set of nodes with a stack: after pushing node i, replace the two top
// entries (left, right) by left + right, `merges[i]` times. The one entry left at the end is the
// sum of the root. Returns an empty vector if `nodes` (ascending) do not exactly cover [0, leaves)
// with nodes of the tree.
std::vector<int> merge_plan(const std::vector<Range>& nodes, int64_t leaves);

}  // namespace pushpull
