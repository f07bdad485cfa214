#include "common/layout/slice_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/base/error.h"

namespace pushpull {
namespace {

const std::vector<int64_t> totals{1, 2, 1023, 1024, 1025, 2048, 4097, 9610, 29034, 100000, 1 << 20};
const std::vector<int64_t> slice_bytes{1, 4, 2048, 4095, 4096, 4097, 8192, 16384, 65536, 1 << 20};

template <class Check>
void for_each_map(const Check& check) {
  for (const int64_t total : totals) {
    for (const int64_t bytes : slice_bytes) {
      for (int servers = 1; servers <= 9; ++servers) {
        SCOPED_TRACE(testing::Message() << total << " elements, slice-bytes " << bytes << ", "
                                        << servers << " servers");
        check(SliceMap(total, bytes, servers), bytes);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(SliceMap, SlicesCoverTheVectorWithoutHoleOrOverlap) {
  for_each_map([](const SliceMap& map, int64_t) {
    int64_t next = 0;
    for (int slice = 0; slice < map.slices(); ++slice) {
      const Range e = map.elements(slice);
      ASSERT_EQ(e.lo, next);
      ASSERT_GT(e.size(), 0);
      next = e.hi;
    }
    ASSERT_EQ(next, map.total());
  });
}

TEST(SliceMap, SlicesAreWholeBlocksOfTheNorm) {
  for_each_map([](const SliceMap& map, int64_t) {
    int64_t next = 0;
    for (int slice = 0; slice < map.slices(); ++slice) {
      const Range blocks = map.blocks(slice);
      ASSERT_EQ(blocks.lo, next);
      ASSERT_EQ(blocks.lo * kBlockElements, map.elements(slice).lo);
      next = blocks.hi;
    }
    ASSERT_EQ(next, map.blocks());
  });
}

TEST(SliceMap, NoSliceExceedsSliceBytesRoundedUpToWholeBlocks) {
  for_each_map([](const SliceMap& map, int64_t bytes) {
    const int64_t block_bytes = kBlockElements * 4;
    const int64_t most = (bytes + block_bytes - 1) / block_bytes * block_bytes;
    for (int slice = 0; slice < map.slices(); ++slice) {
      ASSERT_LE(map.elements(slice).size() * 4, most);
    }
  });
}

TEST(SliceMap, SlicesAreDistributedRoundRobin) {
  for_each_map([](const SliceMap& map, int64_t) {
    std::vector<int> owners(static_cast<size_t>(map.slices()), -1);
    for (int server = 0; server < map.servers(); ++server) {
      for (const int slice : map.slices_of(server)) {
        ASSERT_EQ(owners[static_cast<size_t>(slice)], -1);
        ASSERT_EQ(map.server_of(slice), server);
        ASSERT_EQ(slice % map.servers(), server);
        owners[static_cast<size_t>(slice)] = server;
      }
    }
    ASSERT_EQ(std::count(owners.begin(), owners.end(), -1), 0);
  });
}

TEST(SliceMap, EveryServerHoldsASliceIfThereAreEnoughBlocks) {
  for_each_map([](const SliceMap& map, int64_t) {
    if (map.blocks() < map.servers()) {
      ASSERT_EQ(map.slices(), map.blocks());
      return;
    }
    for (int server = 0; server < map.servers(); ++server) {
      ASSERT_FALSE(map.slices_of(server).empty()) << "server " << server;
    }
  });
}

TEST(SliceMap, TwoThousandBytesMeansOneBlock) {
  const SliceMap map(10000, 2048, 2);
  EXPECT_EQ(map.slices(), 10);
  EXPECT_EQ(map.elements(0), (Range{0, 1024}));
  EXPECT_EQ(map.elements(9), (Range{9216, 10000}));
  EXPECT_EQ(map.slices_of(1), (std::vector<int>{1, 3, 5, 7, 9}));
}

TEST(SliceMap, EachSliceBelongsToOneStage) {
  for (const int64_t total : totals) {
    for (const int64_t bytes : slice_bytes) {
      for (int stages = 2; stages <= 5; ++stages) {
        std::vector<int64_t> begins;
        for (int s = 1; s < stages; ++s) begins.push_back(total * s / stages);
        const SliceMap map(total, bytes, 2, begins);
        const SliceMap whole(total, bytes, 2);
        SCOPED_TRACE(testing::Message()
                     << total << " elements, slice-bytes " << bytes << ", " << stages << " stages");
        ASSERT_EQ(map.stages(), stages);
        int64_t next = 0;
        for (int slice = 0; slice < map.slices(); ++slice) {
          const Range e = map.elements(slice);
          ASSERT_EQ(e.lo, next);
          ASSERT_GT(e.size(), 0);
          ASSERT_LE(e.size(), whole.elements(0).size());
          ASSERT_EQ(map.blocks(slice).lo * kBlockElements, e.lo);
          next = e.hi;
          const int stage = map.stage_of(slice);
          const Range elements = map.elements_of_stage(stage);
          ASSERT_TRUE(elements.lo <= e.lo && e.hi <= elements.hi);
          const Range slices = map.slices_of_stage(stage);
          ASSERT_TRUE(slices.lo <= slice && slice < slices.hi);
        }
        ASSERT_EQ(next, total);
        for (const Range& range : {Range{0, total}, {total - 1, total}, {total / 3, total / 2}}) {
          const Range with = map.slices_with(range);
          for (int slice = 0; slice < map.slices(); ++slice) {
            const Range e = map.elements(slice);
            const bool has_some = std::max(e.lo, range.lo) < std::min(e.hi, range.hi);
            ASSERT_EQ(with.lo <= slice && slice < with.hi, has_some) << slice;
          }
        }
        for (int s = 1; s < stages; ++s) {
          const int64_t begin = map.elements_of_stage(s).lo;
          ASSERT_EQ(map.elements_of_stage(s - 1).hi, begin);
          const int64_t named = begins[static_cast<size_t>(s) - 1];
          ASSERT_TRUE(begin == total || (begin >= named && begin < named + kBlockElements));
        }
      }
    }
  }
}

TEST(SliceMap, AStageMayBeTooSmallForASlice) {
  const SliceMap map(3000, 4096, 1, {100, 200});
  EXPECT_EQ(map.slices(), 3);
  EXPECT_EQ(map.slices_of_stage(0), (Range{0, 1}));
  EXPECT_EQ(map.slices_of_stage(1), (Range{1, 1}));
  EXPECT_EQ(map.stage_of(1), 2);
  EXPECT_EQ(map.elements_of_stage(2), (Range{1024, 3000}));
}

TEST(SliceMap, RefusesSlicesThatItDoesNotHave) {
  const SliceMap map(10000, 4096, 2);
  EXPECT_THROW(map.elements(-1), Error);
  EXPECT_THROW(map.elements(map.slices()), Error);
  EXPECT_THROW(SliceMap(0, 4096, 1), Error);
  EXPECT_THROW(SliceMap(1, 0, 1), Error);
  EXPECT_THROW(SliceMap(1, 4096, 0), Error);
}

}  // namespace
}  // namespace pushpull
