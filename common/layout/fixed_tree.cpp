#include "common/layout/fixed_tree.h"

#include <bit>

#include "common/base/error.h"

namespace pushpull {

int64_t split_point(Range node) {
  PP_ASSERT(node.size() >= 2);
  return node.lo + static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(node.size() - 1)));
}

bool is_node(Range range, int64_t leaves) {
  if (range.lo < 0 || range.hi > leaves || range.size() < 1) return false;
  Range node{0, leaves};
  while (node != range) {
    if (node.size() < 2) return false;
    const int64_t middle = split_point(node);
    if (range.hi <= middle) {
      node.hi = middle;
    } else if (range.lo >= middle) {
      node.lo = middle;
    } else {
      return false;
    }
  }
  return true;
}

namespace {

void collect(Range node, Range range, std::vector<Range>& out) {
  if (range.hi <= node.lo || range.lo >= node.hi) return;
  if (range.lo <= node.lo && node.hi <= range.hi) {
    out.push_back(node);
    return;
  }
  const int64_t middle = split_point(node);
  collect({node.lo, middle}, range, out);
  collect({middle, node.hi}, range, out);
}

// Plans how the nodes from `next` on sum to `node`. Returns false if they do not cover it exactly.
bool plan(Range node, const std::vector<Range>& nodes, size_t& next, std::vector<int>& merges) {
  if (next >= nodes.size()) return false;
  if (nodes[next] == node) {
    merges.push_back(0);
    ++next;
    return true;
  }
  if (node.size() < 2) return false;
  const int64_t middle = split_point(node);
  if (!plan({node.lo, middle}, nodes, next, merges)) return false;
  if (!plan({middle, node.hi}, nodes, next, merges)) return false;
  ++merges.back();
  return true;
}

}  // namespace

Range share_range(int64_t index, int64_t shares, int64_t leaves) {
  return {index * leaves / shares, (index + 1) * leaves / shares};
}

std::vector<Range> maximal_subtrees(Range range, int64_t leaves) {
  std::vector<Range> out;
  if (range.size() > 0) collect({0, leaves}, range, out);
  return out;
}

std::vector<int> merge_plan(const std::vector<Range>& nodes, int64_t leaves) {
  std::vector<int> merges;
  size_t next = 0;
  if (!plan({0, leaves}, nodes, next, merges) || next != nodes.size()) return {};
  return merges;
}

}  // namespace pushpull
