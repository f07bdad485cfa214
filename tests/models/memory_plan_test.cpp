#include "models/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "common/base/error.h"

namespace pushpull {
namespace {

void expect_valid(const std::vector<Region>& regions, const MemoryPlan& plan, size_t alignment) {
  ASSERT_EQ(plan.offsets.size(), regions.size());
  for (size_t a = 0; a < regions.size(); ++a) {
    EXPECT_EQ(plan.offsets[a] % alignment, 0U);
    EXPECT_LE(plan.offsets[a] + regions[a].bytes, plan.bytes);
    for (size_t b = 0; b < a; ++b) {
      if (regions[a].last < regions[b].first || regions[b].last < regions[a].first) continue;
      EXPECT_TRUE(plan.offsets[a] + regions[a].bytes <= plan.offsets[b] ||
                  plan.offsets[b] + regions[b].bytes <= plan.offsets[a])
          << a << " and " << b << " share memory while both are alive";
    }
  }
  EXPECT_GE(plan.bytes, plan.largest_live);
}

TEST(MemoryPlan, RegionsThatAreNotAliveTogetherShareMemory) {
  const MemoryPlan plan = plan_memory({{100, 0, 1}, {100, 2, 3}, {100, 4, 4}}, 64);
  EXPECT_EQ(plan.bytes, 128U);
  EXPECT_EQ(plan.largest_live, 128U);
}

TEST(MemoryPlan, LifetimesIncludeTheirLastEvent) {
  const MemoryPlan plan = plan_memory({{64, 0, 1}, {64, 1, 2}}, 64);
  EXPECT_EQ(plan.bytes, 128U);
}

// A chain of layers: forward keeps all outputs for backward, and two gradients take turns.
TEST(MemoryPlan, ChainOfLayersNeedsNoMoreThanItsLargestLiveSet) {
  constexpr int32_t kLayers = 12;
  std::vector<Region> regions;
  for (int32_t i = 0; i < kLayers; ++i) {
    const size_t bytes = static_cast<size_t>(1 + i % 4) << 12U;
    regions.push_back({bytes, i, 2 * kLayers - 1 - i});                    // output
    regions.push_back({bytes, 2 * kLayers - 2 - i, 2 * kLayers - 1 - i});  // its gradient
  }
  const MemoryPlan plan = plan_memory(regions, 256);
  expect_valid(regions, plan, 256);
  EXPECT_LE(static_cast<double>(plan.bytes), 1.1 * static_cast<double>(plan.largest_live));
}

TEST(MemoryPlan, LiveRegionsOfRandomGraphsDoNotOverlap) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<Region> regions(1 + random() % 40);
    for (Region& region : regions) {
      region.bytes = random() % 3 == 0 ? random() % 8 : random() % 10'000;
      region.first = static_cast<int32_t>(random() % 30);
      region.last = region.first + static_cast<int32_t>(random() % 10);
    }
    const MemoryPlan plan = plan_memory(regions, 64);
    expect_valid(regions, plan, 64);
    EXPECT_EQ(plan_memory(regions, 64).offsets, plan.offsets);
  }
}

TEST(MemoryPlan, NothingNeedsNoMemory) {
  EXPECT_EQ(plan_memory({}, 64).bytes, 0U);
  EXPECT_EQ(plan_memory({{0, 3, 4}, {0, 0, 9}}, 64).bytes, 0U);
}

TEST(MemoryPlan, MalformedRegionsAreRefused) {
  EXPECT_THROW(plan_memory({{64, 2, 1}}, 64), Error);
  EXPECT_THROW(plan_memory({}, 48), Error);
}

}  // namespace
}  // namespace pushpull
