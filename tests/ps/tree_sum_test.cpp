#include <gtest/gtest.h>

#include <vector>

#include "common/base/error.h"
#include "common/update/optimizer.h"
#include "common/update/range_update.h"
#include "ps/engine/slice_engine.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull::tree_sum_test {
namespace {

constexpr int64_t kElements = 5000;

std::vector<float> leaf(int64_t index) {
  return floats_of(random_payload(kElements, static_cast<uint64_t>(index)));
}

// The definition: left + right, recursively down to the micro-batches.
std::vector<float> recursive_sum(Range node) {
  if (node.size() == 1) return leaf(node.lo);
  const int64_t middle = split_point(node);
  std::vector<float> left = recursive_sum({node.lo, middle});
  const std::vector<float> right = recursive_sum({middle, node.hi});
  for (size_t i = 0; i < left.size(); ++i) left[i] = left[i] + right[i];
  return left;
}

PartialSum partial(Range node) {
  const auto owner = std::make_shared<std::vector<float>>(recursive_sum(node));
  return {node, {owner, std::as_bytes(std::span<const float>(*owner))}};
}

std::vector<TreePart> borrowed(const std::vector<PartialSum>& parts) {
  std::vector<TreePart> out;
  for (const PartialSum& part : parts) out.push_back({part.range, part.payload.floats()});
  return out;
}

std::vector<float> sum_of(const std::vector<PartialSum>& parts, int64_t leaves, int64_t stride) {
  TreeSum sum(borrowed(parts), leaves);
  std::vector<float> out;
  for (int64_t lo = 0; lo < kElements; lo += stride) {
    const int64_t n = std::min(stride, kElements - lo);
    const float* block = sum.block(lo, n);
    out.insert(out.end(), block, block + n);
  }
  return out;
}

TEST(TreeSum, HasTheBitsOfTheRecursionForAnyNumberOfWorkers) {
  for (const int64_t leaves : {1, 2, 3, 7, 8, 12}) {
    const std::vector<float> want = recursive_sum({0, leaves});
    for (int workers = 1; workers <= leaves; ++workers) {
      std::vector<PartialSum> parts;
      for (int w = 0; w < workers; ++w) {
        for (const Range& node : maximal_subtrees(share_range(w, workers, leaves), leaves)) {
          parts.push_back(partial(node));
        }
      }
      EXPECT_EQ(sum_of(parts, leaves, TreeSum::kStride), want) << leaves << ", " << workers;
      EXPECT_EQ(sum_of(parts, leaves, 1024), want) << "blocks of a norm";
    }
  }
}

TEST(TreeSum, SinglePartIsItsOwnSum) {
  const std::vector<PartialSum> parts{partial({3, 5})};
  EXPECT_EQ(sum_of(parts, 8, 777), recursive_sum({3, 5}));
}

TEST(TreeSum, ReadsASinglePartInPlace) {
  const std::vector<PartialSum> parts{partial({0, 4})};
  TreeSum sum(borrowed(parts), 4);
  EXPECT_EQ(sum.block(1000, 10), parts[0].payload.floats() + 1000);
}

TEST(TreeSum, ReadsTwoPartsInPlaceAndLeavesTheLastAdditionToTheCaller) {
  const std::vector<PartialSum> parts{partial({0, 4}), partial({4, 8})};
  TreeSum sum(borrowed(parts), 8);
  const SumHalves halves = sum.halves(1000, 10);
  EXPECT_EQ(halves.left, parts[0].payload.floats() + 1000);
  EXPECT_EQ(halves.right, parts[1].payload.floats() + 1000);
}

TEST(TreeSum, CanBeReusedForOtherParts) {
  TreeSum sum;
  for (const int64_t leaves : {3, 1, 8, 7}) {
    std::vector<PartialSum> parts;
    for (int64_t i = 0; i < leaves; ++i) parts.push_back(partial({i, i + 1}));
    sum.begin();
    for (const TreePart& part : borrowed(parts)) sum.add(part);
    sum.reset(leaves);
    const std::vector<float> want = recursive_sum({0, leaves});
    EXPECT_EQ(std::vector<float>(sum.block(0, 1024), sum.block(0, 1024) + 1024),
              std::vector<float>(want.begin(), want.begin() + 1024));
  }
}

TEST(TreeSum, RefusesPartsThatDoNotCoverTheStep) {
  const auto code_of = [](const std::vector<PartialSum>& parts) {
    try {
      const TreeSum sum(borrowed(parts), 8);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::kFailed;
  };
  EXPECT_EQ(code_of({}), ErrorCode::kProtocol);
  EXPECT_EQ(code_of({partial({0, 4}), partial({0, 4})}), ErrorCode::kProtocol);
  EXPECT_EQ(code_of({partial({0, 4}), partial({5, 8})}), ErrorCode::kProtocol);
  EXPECT_EQ(code_of({partial({4, 8}), partial({0, 4})}), ErrorCode::kProtocol);
}

}  // namespace
}  // namespace pushpull::tree_sum_test
