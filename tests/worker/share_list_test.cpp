// Shares that a worker owns, connections of slices, and places of weights: bookkeeping without
// messages.
#include "worker/exchange/share_list.h"

#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/worker/exchange_parts.h"
#include "worker/exchange/pull.h"
#include "worker/exchange/to_server.h"

namespace pushpull {
namespace {

const auto kFromStep = [](int64_t from_step) { return from_step; };

TEST(ShareList, ShareFurthestBehindComesFirst) {
  ShareList shares(ten_steps());
  EXPECT_TRUE(shares.assign(state_with({0}, 3), kFromStep));
  EXPECT_TRUE(shares.assign(state_with({0, 1}, 2), kFromStep));
  EXPECT_EQ(shares.lowest()->index, 1) << "share 0 continues at step 3";
  EXPECT_EQ(shares.next_task(), (Task{Task::kCompute, 2, {2, 4}, 1}));
  EXPECT_EQ(shares.upcoming()->step, 3);
  shares.pushed(2, {2, 4});
  EXPECT_EQ(shares.lowest()->index, 0);
}

TEST(ShareList, BarrierIsEvaluatedOnceBeforeItsStep) {
  ShareList shares(ten_steps(4));
  shares.assign(state_with({1}, 3), kFromStep);
  shares.pushed(3, {2, 4});
  EXPECT_EQ(shares.next_task(), (Task{Task::kEvaluate, 4, {2, 4}, 1})) << "the chunks of share 1";
  shares.evaluated();
  EXPECT_EQ(shares.next_task()->kind, Task::kCompute);
}

TEST(ShareList, NoTaskFollowsTheLastEvaluation) {
  ShareList shares(ten_steps());
  shares.assign(state_with({0}, 9), kFromStep);
  EXPECT_FALSE(shares.upcoming());
  shares.pushed(9, {0, 2});
  EXPECT_EQ(shares.next_task()->kind, Task::kEvaluate);
  shares.evaluated();
  EXPECT_FALSE(shares.next_task());
}

// Returns a state with shares of 2, then of 4 per step, as the coordinator sends it when steps are
// split anew.
wire::State state_of_two_cuts(int64_t from_step) {
  wire::State state = state_with({0});
  state.mutable_assigned(0)->set_to_step(from_step);
  wire::Share* share = state.add_assigned();
  share->set_hi(1);
  share->set_shares(4);
  share->set_first_step(from_step);
  share->set_from_step(from_step);
  state.mutable_assigned(0)->mutable_grant()->set_mac("old");
  share->mutable_grant()->set_mac("new");
  return state;
}

TEST(ShareList, ShareEndsWhereStepsAreSplitAnew) {
  ShareList shares(ten_steps());
  shares.assign(state_with({0}, 3), kFromStep);
  EXPECT_TRUE(shares.assign(state_of_two_cuts(5), kFromStep));
  EXPECT_EQ(shares.unfinished(), 2);
  for (const int64_t step : {3, 4}) {
    EXPECT_EQ(shares.next_task(), (Task{Task::kCompute, step, {0, 2}, 1}));
    shares.pushed(step, {0, 2});
  }
  EXPECT_EQ(shares.unfinished(), 1);
  EXPECT_EQ(shares.next_task(), (Task{Task::kCompute, 5, {0, 1}, 1}));
  EXPECT_EQ(shares.upcoming(), (Task{Task::kCompute, 6, {0, 1}, 1}));
  shares.pushed(5, {0, 1});
  wire::State only_new = state_of_two_cuts(5);
  only_new.mutable_assigned()->DeleteSubrange(0, 1);
  EXPECT_FALSE(shares.assign(only_new, kFromStep));
  EXPECT_EQ(shares.next_task()->step, 6) << "the share continues at its step";
}

TEST(ShareList, BarrierBetweenTwoSplitsIsEvaluatedInTheNewShares) {
  ShareList shares(ten_steps(5));
  shares.assign(state_with({0}, 4), kFromStep);
  shares.assign(state_of_two_cuts(5), kFromStep);
  shares.pushed(4, {0, 2});
  EXPECT_EQ(shares.next_task(), (Task{Task::kEvaluate, 5, {0, 1}, 1})) << "a quarter of 4 chunks";
}

TEST(ShareList, NewcomerBeginsNoShareBeforeItsFirstStep) {
  ShareList shares(ten_steps());
  wire::State state = state_of_two_cuts(5);
  state.mutable_assigned()->DeleteSubrange(0, 1);
  shares.assign(state, [](int64_t) { return -1; });
  shares.begin_at(3);
  EXPECT_EQ(shares.next_task()->step, 5);
}

TEST(ShareList, GrantBelongsToTheComputedShare) {
  ShareList shares(ten_steps());
  wire::State state = state_of_two_cuts(5);
  state.mutable_assigned(1)->set_hi(2);  // the same micro-batches as before
  shares.assign(state, [](int64_t) { return 4; });
  EXPECT_EQ(shares.grant({0, 2}).mac(), "old");
  shares.pushed(4, {0, 2});
  EXPECT_EQ(shares.grant({0, 2}).mac(), "new");
}

TEST(ShareList, RemovedSharesAreForgotten) {
  ShareList shares(ten_steps());
  shares.assign(state_with({0, 1}), kFromStep);
  EXPECT_FALSE(shares.assign(state_with({1}), kFromStep));
  EXPECT_EQ(shares.all().size(), 1U);
}

TEST(ShareList, ShareHasItsGrantWhileItIsOwned) {
  ShareList shares(ten_steps());
  wire::State both = state_with({0, 1});
  both.mutable_assigned(0)->mutable_grant()->set_mac("of share 0");
  both.mutable_assigned(1)->mutable_grant()->set_mac("of share 1");
  shares.assign(both, kFromStep);
  EXPECT_EQ(shares.grant({0, 2}).mac(), "of share 0");
  EXPECT_EQ(shares.grant({2, 4}).mac(), "of share 1");
  EXPECT_EQ(shares.grant({0, 4}).mac(), "") << "[0, 4) is no share";
  shares.assign(state_with({1}), kFromStep);
  EXPECT_EQ(shares.grant({0, 2}).mac(), "") << "the share has another owner";
  EXPECT_EQ(shares.grant({2, 4}).mac(), "of share 1") << "share 1 is still owned";
}

TEST(ShareList, EmptyShareIsAcceptedOnlyWithAMeaning) {
  wire::State state;
  state.add_assigned()->set_index(1);
  EXPECT_THROW(ShareList(ten_steps()).assign(state, kFromStep), Error);
  EXPECT_TRUE(ShareList(ten_steps()).assign(state, kFromStep, true));
}

TEST(ShareList, SharesOfAnUnknownStepBeginAtTheStepOfTheRun) {
  ShareList shares(ten_steps());
  shares.assign(state_with({0}), [](int64_t /*from_step*/) { return int64_t{-1}; });
  shares.begin_at(5);
  EXPECT_EQ(shares.lowest()->clock, 5);
  shares.begin_at(7);
  EXPECT_EQ(shares.lowest()->clock, 5);
}

TEST(ConnectionMap, SlicesAlternateAndAServerHasNoMoreConnectionsThanSlices) {
  const ConnectionMap map(three_slices(), 3);
  EXPECT_EQ(map.count(0), 2);
  EXPECT_EQ(map.count(1), 1);
  EXPECT_EQ(map.of_slice(0), 0);
  EXPECT_EQ(map.of_slice(2), 1);
  EXPECT_EQ(map.of_slice(1), 0);
  EXPECT_EQ(map.pulled(0), (std::vector<int>{0, 2}));
}

TEST(ConnectionMap, ServerWithoutSlicesHasOneConnection) {
  const ConnectionMap map({10, 4096, 2}, 4);
  EXPECT_EQ(map.count(1), 1);
  EXPECT_TRUE(map.pulled(1).empty());
}

TEST(InPlaceWeights, AreRequestedOnlyIfTheServerSharesPlainWeights) {
  for (const bool possible : {false, true}) {
    InPlaceWeights weights(2, possible);
    weights.share(0, true, true);
    weights.ask(0, false);
    weights.ask(1, false);
    EXPECT_EQ(weights.asked(0), possible);
    EXPECT_FALSE(weights.asked_on_device(0)) << "weights of two servers are assembled on the host";
    EXPECT_FALSE(weights.asked(1));
    EXPECT_EQ(weights.any(), possible);
  }
}

TEST(InPlaceWeights, FallBackFromTheDeviceToTheHostToTheSocket) {
  InPlaceWeights weights(1, true);
  weights.share(0, true, true);
  weights.ask(0, false);
  EXPECT_TRUE(weights.asked_on_device(0));
  weights.set_not_contiguous(0, false);
  weights.ask(0, false);
  EXPECT_TRUE(weights.asked(0));
  EXPECT_FALSE(weights.asked_on_device(0));
  weights.set_not_contiguous(0, false);
  weights.ask(0, false);
  EXPECT_FALSE(weights.asked(0));
}

TEST(InPlaceWeights, ARepeatedPullAsksAsTheFirstOneOrForCopies) {
  InPlaceWeights weights(2, true);
  weights.share(1, true, false);
  weights.ask(0, false);
  weights.ask(1, false);
  weights.share(0, true, false);
  weights.share(1, false, false);
  for (const int server : {0, 1}) {
    weights.ask_again(server);
    EXPECT_FALSE(weights.asked(server)) << server;
  }
}

TEST(InPlaceWeights, NewestWeightsInSeveralPiecesDoNotAffectOthers) {
  InPlaceWeights weights(1, true);
  weights.share(0, true, false);
  weights.ask(0, true);
  weights.set_not_contiguous(0, true);
  weights.ask(0, true);
  EXPECT_FALSE(weights.asked(0));
  weights.ask(0, false);
  EXPECT_TRUE(weights.asked(0));
}

}  // namespace
}  // namespace pushpull
