#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/layout/slice_map.h"
#include "common/update/norm.h"
#include "ps/run/training_run.h"

namespace pushpull {
namespace {

// Returns two tensors of one element less than a block and of the rest.
TensorTable two_tensors(int64_t total) {
  TensorTable table;
  for (const int64_t size : {kBlockElements - 1, total - kBlockElements + 1}) {
    TensorInfo info;
    info.name = std::to_string(size);
    info.shape = {size};
    table.add(info);
  }
  return table;
}

// Three slices on two servers.
const TensorTable kTable = two_tensors(3000);
const SliceMap kMap(kTable, 4096, 2);
const OptimizerOptions kLamb{.kind = OptimizerKind::kLamb};

// Returns `square` for each slice of the server, with incarnation 100 + rank.
wire::Norms norms_of(int rank, int64_t step, double square = 3.0) {
  wire::Norms norms;
  norms.set_incarnation(100 + static_cast<uint64_t>(rank));
  norms.set_step(step);
  for (const int slice : kMap.slices_of(rank)) {
    for (const NormPart& part : norm_parts({&square, 1}, kMap.blocks(slice).lo, kMap.blocks())) {
      wire::NormNode* node = norms.add_nodes();
      node->set_lo(part.blocks.lo);
      node->set_hi(part.blocks.hi);
      node->set_squares(part.squares);
    }
  }
  return norms;
}

TEST(NormTotals, TotalIsSentToAllOnceAndThenToServersThatRepeat) {
  NormTotals totals(kTable, kMap, {});
  EXPECT_FALSE(totals.take(norms_of(0, 0)));
  EXPECT_FALSE(totals.take(norms_of(0, 0))) << "a repeat: still one of two servers";
  EXPECT_TRUE(totals.take(norms_of(1, 0)));
  EXPECT_TRUE(totals.all_here_now());
  ASSERT_TRUE(totals.total());
  EXPECT_EQ(totals.total()->step(), 0);
  EXPECT_DOUBLE_EQ(totals.total()->norm(), 3.0);
  EXPECT_TRUE(totals.take(norms_of(0, 0)));
  EXPECT_FALSE(totals.all_here_now()) << "only this server needs the answer";
}

TEST(NormTotals, PartsOfDifferentStepsDoNotMix) {
  NormTotals totals(kTable, kMap, {});
  EXPECT_FALSE(totals.take(norms_of(0, 0, 100.0)));
  EXPECT_FALSE(totals.take(norms_of(1, 1)));
  EXPECT_FALSE(totals.take(norms_of(0, 0, 100.0))) << "step 0 is already complete";
  EXPECT_TRUE(totals.take(norms_of(0, 1)));
  EXPECT_DOUBLE_EQ(totals.total()->norm(), 3.0);
}

TEST(NormTotals, ServersWithoutSlicesAreNotWaitedFor) {
  const SliceMap one_slice(10, 4096, 3);
  NormTotals totals(kTable, one_slice, {});
  EXPECT_EQ(totals.servers(), 1);
  wire::Norms norms;
  norms.set_incarnation(100);
  wire::NormNode* node = norms.add_nodes();
  node->set_lo(0);
  node->set_hi(one_slice.blocks());
  node->set_squares(4.0);
  EXPECT_TRUE(totals.take(norms));
  EXPECT_DOUBLE_EQ(totals.total()->norm(), 2.0);
}

TEST(NormTotals, EarlierTotalsAreKeptForAServerThatRepeatsSteps) {
  NormTotals totals(kTable, kMap, {}, 2);
  for (int64_t step = 0; step < 4; ++step) {
    totals.take(norms_of(0, step, 3.0 + static_cast<double>(step)));
    totals.take(norms_of(1, step, 3.0 + static_cast<double>(step)));
  }
  EXPECT_FALSE(totals.take(norms_of(1, 0))) << "the total of step 0 is no longer kept";
  for (const int64_t step : {1, 2, 3}) {
    ASSERT_TRUE(totals.take(norms_of(1, step, 1.0))) << step;
    EXPECT_FALSE(totals.all_here_now());
    EXPECT_EQ(totals.total()->step(), step);
    EXPECT_DOUBLE_EQ(totals.total()->norm(), std::sqrt(3.0 * (3.0 + static_cast<double>(step))));
  }
}

TEST(NormTotals, PartsOfALostServerDoNotCount) {
  NormTotals totals(kTable, kMap, {});
  EXPECT_FALSE(totals.take(norms_of(1, 0, 100.0)));
  totals.forget(101);
  wire::Norms other = norms_of(1, 0);
  other.set_incarnation(201);
  EXPECT_FALSE(totals.take(other));
  EXPECT_TRUE(totals.take(norms_of(0, 0)));
  EXPECT_DOUBLE_EQ(totals.total()->norm(), 3.0);
}

// Returns squares of both tensors; the weights' are four times those of the update.
wire::Norms tensor_norms_of(int rank, int64_t step, double square = 1.0) {
  wire::Norms norms;
  norms.set_incarnation(100 + static_cast<uint64_t>(rank));
  norms.set_step(step);
  norms.set_of_tensors(true);
  for (const int slice : kMap.slices_of(rank)) {
    for (const int tensor : {0, 1}) {
      if (tensor == 0 && slice > 0) continue;  // it lies in the first block
      wire::NormNode* node = norms.add_nodes();
      node->set_tensor(tensor);
      node->set_lo(kMap.blocks(slice).lo);
      node->set_hi(kMap.blocks(slice).hi);
      node->set_squares(square);
      node->set_weights(4.0 * square);
    }
  }
  return norms;
}

TEST(NormTotals, TrustRatiosFollowTheNormOfTheirStep) {
  NormTotals totals(kTable, kMap, kLamb, 1);
  totals.take(norms_of(0, 0));
  EXPECT_FALSE(totals.take(tensor_norms_of(1, 0))) << "the first server has not sent its own";
  EXPECT_FALSE(totals.take(norms_of(1, 0))) << "the norm of the gradient is complete already";
  EXPECT_TRUE(totals.take(tensor_norms_of(0, 0)));
  EXPECT_TRUE(totals.all_here_now());
  EXPECT_TRUE(totals.total()->of_tensors());
  EXPECT_EQ(totals.total()->step(), 0);
  EXPECT_THAT(totals.total()->trust(), testing::ElementsAre(2.0, 2.0));
  EXPECT_TRUE(totals.take(tensor_norms_of(1, 0, 7.0))) << "a repeat gets the same answer";
  EXPECT_FALSE(totals.all_here_now());
  EXPECT_THAT(totals.total()->trust(), testing::ElementsAre(2.0, 2.0));
}

TEST(NormTotals, BothTotalsOfEarlierStepsAreKept) {
  NormTotals totals(kTable, kMap, kLamb, 1);
  for (int64_t step = 0; step < 3; ++step) {
    for (const int rank : {0, 1}) totals.take(norms_of(rank, step, 3.0));
    for (const int rank : {0, 1}) totals.take(tensor_norms_of(rank, step));
  }
  EXPECT_FALSE(totals.take(norms_of(1, 0)));
  EXPECT_FALSE(totals.take(tensor_norms_of(1, 0)));
  for (const int64_t step : {1, 2}) {
    ASSERT_TRUE(totals.take(norms_of(1, step))) << step;
    EXPECT_FALSE(totals.total()->of_tensors());
    EXPECT_DOUBLE_EQ(totals.total()->norm(), 3.0);
    ASSERT_TRUE(totals.take(tensor_norms_of(1, step))) << step;
    EXPECT_THAT(totals.total()->trust(), testing::ElementsAre(2.0, 2.0));
  }
}

TEST(NormTotals, TensorsOfALostServerDoNotCount) {
  NormTotals totals(kTable, kMap, kLamb);
  EXPECT_FALSE(totals.take(tensor_norms_of(1, 0, 100.0)));
  totals.forget(101);
  wire::Norms other = tensor_norms_of(1, 0);
  other.set_incarnation(201);
  EXPECT_FALSE(totals.take(other));
  EXPECT_TRUE(totals.take(tensor_norms_of(0, 0)));
  EXPECT_THAT(totals.total()->trust(), testing::ElementsAre(2.0, 2.0));
}

}  // namespace
}  // namespace pushpull
