#include <gtest/gtest.h>

#include <vector>

#include "ps/server/push_intake.h"

namespace pushpull {
namespace {

EarlyPushes::Early early(uint64_t worker, int64_t number, int64_t step, size_t floats = 1) {
  EarlyPushes::Early out;
  out.peer = "peer";
  out.exchange.mutable_sender()->set_incarnation(worker);
  out.exchange.mutable_push()->set_number(number);
  out.exchange.mutable_push()->set_step(step);
  auto values = std::make_shared<std::vector<float>>(floats);
  const auto bytes = std::as_bytes(std::span<const float>(*values));
  out.payloads.push_back({std::move(values), bytes});
  return out;
}

TEST(EarlyPushes, AreTakenWhenTheirStepBegins) {
  EarlyPushes pushes(1 << 20);
  EXPECT_TRUE(pushes.keep(early(1, 6, 5)));
  EXPECT_TRUE(pushes.keep(early(2, 9, 4)));
  EXPECT_FALSE(pushes.any_of(3));
  EXPECT_TRUE(pushes.any_of(4));
  ASSERT_EQ(pushes.take(4).size(), 1U);
  EXPECT_TRUE(pushes.take(4).empty());
  ASSERT_EQ(pushes.take(7).size(), 1U);
}

TEST(EarlyPushes, RepeatedPushIsKeptOnce) {
  EarlyPushes pushes(1 << 20);
  EXPECT_TRUE(pushes.keep(early(1, 6, 5)));
  EXPECT_FALSE(pushes.keep(early(1, 6, 5)));
  EXPECT_TRUE(pushes.keep(early(2, 6, 5))) << "a push of another worker";
  EXPECT_EQ(pushes.take(5).size(), 2U);
  EXPECT_TRUE(pushes.keep(early(1, 6, 5)));
}

TEST(EarlyPushes, WorkerFillsOnlyItsOwnRoom) {
  EarlyPushes pushes(10'000);
  EXPECT_TRUE(pushes.keep(early(1, 1, 1, 2000)));
  EXPECT_FALSE(pushes.keep(early(1, 2, 2, 2000)));
  EXPECT_TRUE(pushes.keep(early(2, 1, 1, 2000)));
  pushes.take(1);
  EXPECT_TRUE(pushes.keep(early(1, 2, 2, 2000)));
}

TEST(EarlyPushes, HeaderTakesRoomToo) {
  EarlyPushes pushes(1 << 20);
  EarlyPushes::Early large = early(1, 1, 1);
  large.exchange.mutable_push()->mutable_losses()->Resize(1 << 18, 0.0F);
  EXPECT_FALSE(pushes.keep(large)) << "a header of more than 1 MiB";
  for (int64_t number = 1; number < 4; ++number) {
    EarlyPushes::Early half = early(1, number, 1);
    half.exchange.mutable_push()->mutable_losses()->Resize(1 << 17, 0.0F);
    EXPECT_EQ(pushes.keep(half), number == 1) << "two halves and their other fields are too much";
  }
  pushes.take(1);
  EXPECT_TRUE(pushes.keep(early(1, 9, 2)));
}

}  // namespace
}  // namespace pushpull
