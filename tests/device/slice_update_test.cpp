// Threads of a block run at the same time on a device. Here each runs alone on memory of its own, and
// the test compares which floats of the block's stacks they have written.
#include "common/device/slice_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace pushpull::device {
namespace {

constexpr int kWide = 4;
constexpr int kThreads = 8;
constexpr int kParts = 4;
constexpr int kDepth = 3;
constexpr int kElements = 101;
constexpr int kFirst = 3;  // so that a tile has single elements before and after its wide ones

// A slice of four parts, ((0 + 1) + (2 + 3)), and one tile of it.
class Slice {
 public:
  Slice() {
    for (int p = 0; p < kParts; ++p) {
      values_[p].resize(size_t{kElements} / kWide + 1);
      for (int i = 0; i < kElements; ++i) floats(p)[i] = static_cast<float>(1 + i + 1000 * p);
    }
    const int64_t merges[kParts] = {0, 1, 0, 2};
    for (int p = 0; p < kParts; ++p) parts_.push_back({floats(p), merges[p]});
    before_.resize(size_t{kElements} / kWide + 1);
    after_.resize(before_.size());
    move_.parts = kParts;
    move_.aligned = 1;
    move_.before = before_.front().at;
    move_.after = after_.front().at;
    segment_ = {0, kElements, 0, 1, {}};
    segment_.rule.kind = ElementRule::kSgd;
    segment_.rule.decay = Decay::kNone;
    tile_ = {kFirst, kElements - kFirst, 0};
  }

  SliceBatch batch() const { return {parts_.data(), &move_, &segment_, &tile_, 1, 1, kDepth}; }

 private:
  float* floats(int part) { return values_[part].front().at; }

  std::vector<Floats<kWide>> values_[kParts];
  std::vector<SlicePart> parts_;
  std::vector<Floats<kWide>> before_;
  std::vector<Floats<kWide>> after_;
  SliceMove move_{};
  SliceSegment segment_{};
  SliceTile tile_{};
};

// Expects that no two threads write the same float of the stacks, and that some write.
//   run(thread, of_block): runs the thread's share of a tile.
void expect_stacks_apart(const std::function<void(int, float*)>& run) {
  const size_t count = size_t{kDepth} * kThreads * kWide;
  std::vector<int> writer(count, -1);
  for (int thread = 0; thread < kThreads; ++thread) {
    const Floats<kWide> unwritten = {-1.0F, -1.0F, -1.0F, -1.0F};  // no part or sum is negative
    std::vector<Floats<kWide>> stacks(count / kWide, unwritten);
    run(thread, stacks.front().at);
    for (size_t i = 0; i < count; ++i) {
      if (stacks[i / kWide].at[i % kWide] == -1.0F) continue;
      EXPECT_EQ(writer[i], -1) << "float " << i << " of thread " << thread;
      writer[i] = thread;
    }
  }
  for (int thread = 0; thread < kThreads; ++thread) {
    EXPECT_NE(std::count(writer.begin(), writer.end(), thread), 0) << "thread " << thread;
  }
}

TEST(SliceUpdate, ThreadsOfABlockHaveStacksOfTheirOwn) {
  const Slice slice;
  expect_stacks_apart([&](int thread, float* of_block) {
    update_tile<kWide>(slice.batch(), 0, thread, kThreads, of_block);
  });
}

TEST(SliceUpdate, ThreadsThatSumForANormHaveStacksOfTheirOwn) {
  const Slice slice;
  std::vector<Floats<kWide>> means(kNormBlock / kWide);
  expect_stacks_apart([&](int thread, float* of_block) {
    mean_gradient<kWide>(slice.batch(), 0, 2.0F, thread, kThreads, means.front().at,
                         {of_block, thread, kThreads, kWide});
  });
}

}  // namespace
}  // namespace pushpull::device
