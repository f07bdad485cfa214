#include "common/layout/fixed_tree.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "common/base/error.h"

namespace pushpull {
namespace {

constexpr int64_t kMax = 70;

// Adds all nodes below `node` by the definition in DESIGN: split at the largest power of two below
// n.
void all_nodes(Range node, std::set<Range>& out) {
  out.insert(node);
  if (node.size() < 2) return;
  int64_t left = 1;
  while (left * 2 < node.size()) left *= 2;
  all_nodes({node.lo, node.lo + left}, out);
  all_nodes({node.lo + left, node.hi}, out);
}

std::set<Range> nodes_of(int64_t leaves) {
  std::set<Range> out;
  all_nodes({0, leaves}, out);
  return out;
}

// A value per leaf such that the float sum depends on the order of the additions.
float leaf_value(int64_t leaf) { return 1.0F / static_cast<float>(3 * leaf + 1) + 1000.0F; }

float recursive_sum(Range node) {
  if (node.size() == 1) return leaf_value(node.lo);
  const int64_t middle = split_point(node);
  return recursive_sum({node.lo, middle}) + recursive_sum({middle, node.hi});
}

float stack_sum(const std::vector<Range>& nodes, const std::vector<int>& merges) {
  std::vector<float> stack;
  for (size_t i = 0; i < nodes.size(); ++i) {
    stack.push_back(recursive_sum(nodes[i]));
    for (int m = 0; m < merges[i]; ++m) {
      const float right = stack.back();
      stack.pop_back();
      stack.back() += right;
    }
  }
  EXPECT_EQ(stack.size(), 1U);
  return stack.front();
}

std::vector<Range> joined(std::vector<Range> a, const std::vector<Range>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(FixedTree, SplitsAtTheLargestPowerOfTwoBelowTheSize) {
  const std::vector<std::pair<int64_t, int64_t>> cases{{2, 1}, {3, 2},   {4, 2},   {5, 4},
                                                       {8, 4}, {9, 8},   {16, 8},  {17, 16},
                                                       {7, 4}, {64, 32}, {65, 64}, {70, 64}};
  for (const auto& [size, left] : cases) {
    EXPECT_EQ(split_point({0, size}), left) << size;
    EXPECT_EQ(split_point({100, 100 + size}), 100 + left) << size;
  }
  EXPECT_EQ(split_point({0, int64_t{1} << 62}), int64_t{1} << 61);
}

TEST(FixedTree, DoesNotSplitALeaf) {
  EXPECT_THROW(split_point({3, 4}), Error);
  EXPECT_THROW(split_point({3, 3}), Error);
}

TEST(FixedTree, RecognisesItsNodesAndNoOtherRanges) {
  for (int64_t leaves = 1; leaves <= kMax; ++leaves) {
    const std::set<Range> nodes = nodes_of(leaves);
    for (int64_t lo = -1; lo <= leaves; ++lo) {
      for (int64_t hi = lo - 1; hi <= leaves + 1; ++hi) {
        EXPECT_EQ(is_node({lo, hi}, leaves), nodes.contains({lo, hi}))
            << leaves << " leaves, [" << lo << ", " << hi << ")";
      }
    }
  }
}

// The cover is minimal if no parent of a node lies in the range.
TEST(FixedTree, CoversEveryRangeExactlyByTheFewestNodes) {
  for (int64_t leaves = 1; leaves <= kMax; ++leaves) {
    const std::set<Range> nodes = nodes_of(leaves);
    for (int64_t lo = 0; lo < leaves; ++lo) {
      for (int64_t hi = lo + 1; hi <= leaves; ++hi) {
        std::vector<Range> maximal;  // nodes in the range that no other such node contains
        for (const Range& node : nodes) {
          if (node.lo < lo || node.hi > hi) continue;
          if (!maximal.empty() && node.hi <= maximal.back().hi) continue;
          if (!maximal.empty() && node.lo == maximal.back().lo) maximal.pop_back();
          maximal.push_back(node);
        }
        ASSERT_EQ(maximal_subtrees({lo, hi}, leaves), maximal)
            << leaves << " leaves, [" << lo << ", " << hi << ")";
      }
    }
  }
}

TEST(FixedTree, AnEmptyRangeHasNoSubtrees) {
  EXPECT_TRUE(maximal_subtrees({3, 3}, 8).empty());
  EXPECT_TRUE(maximal_subtrees({5, 3}, 8).empty());
}

TEST(FixedTree, AStackSumsAnyTwoSharesToTheBitsOfTheRecursion) {
  for (int64_t leaves = 1; leaves <= kMax; ++leaves) {
    const float want = recursive_sum({0, leaves});
    for (int64_t lo = 0; lo <= leaves; ++lo) {
      for (int64_t hi = lo; hi <= leaves; ++hi) {
        const auto cover =
            joined(joined(maximal_subtrees({0, lo}, leaves), maximal_subtrees({lo, hi}, leaves)),
                   maximal_subtrees({hi, leaves}, leaves));
        const std::vector<int> merges = merge_plan(cover, leaves);
        ASSERT_EQ(merges.size(), cover.size()) << leaves << ": " << lo << ", " << hi;
        ASSERT_EQ(stack_sum(cover, merges), want) << leaves << ": " << lo << ", " << hi;
      }
    }
  }
}

TEST(FixedTree, RefusesAPlanOverHolesOverlapsAndForeignNodes) {
  for (int64_t leaves = 2; leaves <= kMax; ++leaves) {
    std::vector<Range> singles;
    for (int64_t i = 0; i < leaves; ++i) singles.push_back({i, i + 1});
    ASSERT_EQ(merge_plan(singles, leaves).size(), singles.size());
    for (size_t hole = 0; hole < singles.size(); ++hole) {
      std::vector<Range> without = singles;
      without.erase(without.begin() + static_cast<int64_t>(hole));
      EXPECT_TRUE(merge_plan(without, leaves).empty());
      std::vector<Range> twice = singles;
      twice.insert(twice.begin() + static_cast<int64_t>(hole), singles[hole]);
      EXPECT_TRUE(merge_plan(twice, leaves).empty());
    }
  }
  EXPECT_TRUE(merge_plan({}, 4).empty());
  EXPECT_TRUE(merge_plan({{0, 1}, {1, 3}, {3, 4}}, 4).empty()) << "[1, 3) is no node of 4 leaves";
  EXPECT_TRUE(merge_plan({{2, 4}, {0, 2}}, 4).empty()) << "not ascending";
  EXPECT_TRUE(merge_plan({{0, 4}, {4, 8}}, 4).empty()) << "beyond the leaves";
  EXPECT_TRUE(merge_plan({{-4, 0}, {0, 4}}, 4).empty());
  EXPECT_TRUE(merge_plan({{0, 2}, {3, 2}}, 4).empty());
}

}  // namespace
}  // namespace pushpull
