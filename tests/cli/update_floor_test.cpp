#include "cli/bench/update_floor.h"

#include <gtest/gtest.h>

#include "common/base/thread_pool.h"

namespace pushpull {
namespace {

TEST(UpdateFloor, AnUpdateOfMoreBytesTakesLonger) {
  for (const OptimizerKind optimizer :
       {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdam}) {
    EXPECT_GT(update_floor_us(32 << 20, 2, optimizer), update_floor_us(4096, 2, optimizer));
  }
  EXPECT_GT(update_floor_us(4, 1, OptimizerKind::kSgd), 0.0);
}

// A vector that is left out would take no time, and the result would be no floor.
TEST(UpdateFloor, EveryElementIsUpdatedOnce) {
  constexpr int64_t kElements = 5000;  // neither whole blocks nor whole parts
  for (const int64_t gradients : {1, 2, 3}) {
    for (const size_t states : {0U, 1U, 2U}) {
      for (const int threads : {1, 3}) {
        UpdateFloor floor(kElements * static_cast<int64_t>(sizeof(float)), gradients, states);
        ThreadPool pool(threads);
        floor.pass(pool);
        const auto sum = static_cast<float>(gradients) * floor.gradient(0)[0];
        for (int64_t i = 0; i < kElements; ++i) {
          ASSERT_NEAR(floor.weights()[i], -1e-3F * sum, 1e-9F)
              << gradients << " " << states << " " << i;
        }
      }
    }
  }
}

TEST(UpdateFloor, APassOverAPartLeavesTheRestUnchanged) {
  UpdateFloor floor(4000, 2, 1);
  floor.pass(10, 20);
  EXPECT_EQ(floor.weights()[9], 0.0F);
  EXPECT_LT(floor.weights()[10], 0.0F);
  EXPECT_LT(floor.weights()[19], 0.0F);
  EXPECT_EQ(floor.weights()[20], 0.0F);
}

}  // namespace
}  // namespace pushpull
