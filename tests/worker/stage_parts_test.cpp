#include "worker/compute/stage_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Returned = StageParts::Returned;

struct Stages {
  TensorTable table;
  std::vector<std::vector<size_t>> read;

  // begins: whether a stage begins with the tensor.
  void add(int64_t size, bool begins) {
    TensorInfo tensor;
    tensor.name = std::to_string(table.tensors.size());
    tensor.shape = {size};
    tensor.begins_stage = begins && !table.tensors.empty();
    if (begins) read.emplace_back();
    read.back().push_back(table.tensors.size());
    table.add(std::move(tensor));
  }
  SliceMap map() const { return {table.total, 4096, 1, table.stage_begins()}; }
  StageParts parts(int stage) const { return stage_parts(table, map(), read, stage); }
};

TEST(StageParts, TheFirstElementsMayBelongToTheStageBefore) {
  Stages stages;
  stages.add(3000, true);
  stages.add(2000, true);
  stages.add(500, false);
  const StageParts first = stages.parts(0);
  EXPECT_EQ(first.owned, (Range{0, 3072}));
  EXPECT_EQ(first.own, (Range{0, 3000}));
  EXPECT_THAT(first.reads, ElementsAre(Range{0, 3000}));
  EXPECT_THAT(first.returns, IsEmpty());
  EXPECT_THAT(first.gathered, ElementsAre(Returned{1, {{3000, 3072}}}));
  const StageParts second = stages.parts(1);
  EXPECT_EQ(second.owned, (Range{3072, 5500}));
  EXPECT_THAT(second.reads, ElementsAre(Range{3000, 5500}));
  EXPECT_THAT(second.returns, ElementsAre(Returned{0, {{3000, 3072}}}));
  EXPECT_THAT(second.gathered, IsEmpty());
}

TEST(StageParts, OfTiedWeightsEachReaderReturnsToTheOneBefore) {
  Stages stages;
  stages.add(1024, true);
  stages.add(2048, true);
  stages.add(1024, true);
  stages.add(1000, true);
  for (const size_t stage : {2, 3}) stages.read[stage].insert(stages.read[stage].begin(), 1);
  EXPECT_THAT(stages.parts(3).returns, ElementsAre(Returned{2, {{1024, 3072}}}));
  EXPECT_THAT(stages.parts(3).reads, ElementsAre(Range{1024, 3072}, Range{4096, 5096}));
  EXPECT_THAT(stages.parts(2).gathered, ElementsAre(Returned{3, {{1024, 3072}}}));
  EXPECT_THAT(stages.parts(2).returns, ElementsAre(Returned{1, {{1024, 3072}}}));
  EXPECT_THAT(stages.parts(1).gathered, ElementsAre(Returned{2, {{1024, 3072}}}));
  EXPECT_THAT(stages.parts(1).returns, IsEmpty());
  EXPECT_THAT(stages.parts(0).gathered, IsEmpty());
}

// Both kinds in one message.
TEST(StageParts, ATiedTensorBeforeTheBorderJoinsTheElementsBehindIt) {
  Stages stages;
  stages.add(1000, true);
  stages.add(2000, true);
  stages.read[1].insert(stages.read[1].begin(), 0);
  EXPECT_THAT(stages.parts(1).returns, ElementsAre(Returned{0, {{0, 1024}}}));
  EXPECT_THAT(stages.parts(0).gathered, ElementsAre(Returned{1, {{0, 1024}}}));
}

// Each element has one owner, and its gradient reaches it from all readers.
TEST(StageParts, EachGradientReachesItsOwnerOnce) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    Stages stages;
    const int count = 1 + static_cast<int>(random() % 6);
    for (int s = 0; s < count; ++s) {
      const int64_t most = random() % 2 == 0 ? 100 : 3000;
      for (uint32_t t = 0; t < 1 + random() % 3; ++t) {
        stages.add(1 + static_cast<int64_t>(random()) % most, t == 0);
      }
      const size_t tied = random() % stages.table.tensors.size();
      std::vector<size_t>& read = stages.read.back();
      if (tied < read.front()) read.insert(read.begin(), tied);
    }
    // returns, from the last stage on: elements that have reached each stage
    std::vector<std::vector<int>> here(static_cast<size_t>(count),
                                       std::vector<int>(static_cast<size_t>(stages.table.total)));
    std::vector<int> readers(static_cast<size_t>(stages.table.total));
    int64_t owned = 0;
    for (int s = count; s-- > 0;) {
      const StageParts parts = stages.parts(s);
      std::vector<int>& own = here[static_cast<size_t>(s)];
      for (const Range& range : parts.reads) {
        for (int64_t i = range.lo; i < range.hi; ++i) {
          ++own[static_cast<size_t>(i)];
          ++readers[static_cast<size_t>(i)];
        }
      }
      for (const Returned& part : parts.returns) {
        ASSERT_LT(part.stage, s);
        const std::vector<Returned> gathered = stages.parts(part.stage).gathered;
        EXPECT_TRUE(std::ranges::find(gathered, Returned{s, part.ranges}) != gathered.end());
        for (const Range& range : part.ranges) {
          for (int64_t i = range.lo; i < range.hi; ++i) {
            here[static_cast<size_t>(part.stage)][static_cast<size_t>(i)] +=
                std::exchange(own[static_cast<size_t>(i)], 0);
          }
        }
      }
      owned += parts.owned.size();
    }
    EXPECT_EQ(owned, stages.table.total);
    for (int s = 0; s < count; ++s) {
      const Range owns = stages.parts(s).owned;
      for (int64_t i = 0; i < stages.table.total; ++i) {
        const bool is_owner = owns.lo <= i && i < owns.hi;
        ASSERT_EQ(here[static_cast<size_t>(s)][static_cast<size_t>(i)],
                  is_owner ? readers[static_cast<size_t>(i)] : 0)
            << "round " << round << ", stage " << s << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace pushpull
