// Tests the worker's exchange. The test plays the servers.
#include "worker/exchange/push_pull.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <map>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/worker/exchange_fixture.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// ---- measurements ----

TEST_F(Exchange, DataHashIsSentToServerZeroWithTheLosses) {
  make("strategy = sync\n");
  assign({1});
  const Task task = ready_at(4);
  worker_->take_outgoing();
  push(task, std::string(32, 'h'));
  std::map<int, std::string> got;
  for (const ToServer& out : worker_->take_outgoing()) {
    const wire::Push& part = out.message.header.exchange().push();
    got[out.server] += part.data_hash();
    EXPECT_EQ(part.data_hash().empty(), part.losses_size() == 0);
  }
  EXPECT_EQ(got, (std::map<int, std::string>{{0, std::string(32, 'h')}, {1, ""}}));
}

TEST_F(Exchange, ReportsTheFirstWeightsAfterAPush) {
  make("strategy = sync\n");
  assign({1});
  const Task task = ready_at(4);
  EXPECT_TRUE(worker_->pull_answered());
  push(task);
  EXPECT_FALSE(worker_->pull_answered());
  const int64_t number = newest_pull().number();
  hear(0, status(number, 0));
  EXPECT_FALSE(worker_->pull_answered()) << "a status has no weights";
  hear(1, weights(1, number, 5, 1.0F, 1));
  EXPECT_TRUE(worker_->pull_answered());
  EXPECT_EQ(next().kind, Task::kWait) << "one server is still missing";
}

// ---- sync ----

TEST_F(Exchange, SpareWaitsAndSendsNothing) {
  make("strategy = sync\n");
  EXPECT_EQ(next().kind, Task::kWait);
  EXPECT_TRUE(worker_->take_outgoing().empty());
  EXPECT_THAT(worker_->waiting_for(), HasSubstr("spare"));
}

TEST_F(Exchange, FirstPullAsksForTheNewestVersion) {
  make("strategy = sync\n");
  assign({1});
  EXPECT_EQ(next().kind, Task::kWait);
  const wire::Pull pull = newest_pull();
  EXPECT_TRUE(pull.latest());
  EXPECT_EQ(pull.number(), 1);
  EXPECT_THAT(worker_->waiting_for(), HasSubstr("of server 0, 1"));
  hear(0, weights(0, 1, 4, 7.0F));
  EXPECT_EQ(next().kind, Task::kWait);
  EXPECT_THAT(worker_->waiting_for(), HasSubstr("of server 1"));
  hear(1, weights(1, 1, 4, 8.0F));
  const Task task = next();
  EXPECT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.step, 4);
  EXPECT_EQ(task.range, (Range{2, 4}));
  EXPECT_EQ(worker_->weights()[0], 7.0F);
  EXPECT_EQ(worker_->weights()[1024], 8.0F);
  EXPECT_EQ(worker_->weights()[2999], 7.0F);
}

TEST_F(Exchange, LowerVersionIsPulledIfOneServerIsAStepAhead) {
  make("strategy = sync\n");
  assign({0});
  next();
  newest_pull();
  hear(0, weights(0, 1, 5, 1.0F));
  hear(1, weights(1, 1, 4, 1.0F));
  EXPECT_EQ(next().kind, Task::kWait);
  const wire::Pull pull = newest_pull();
  EXPECT_EQ(pull.number(), 2);
  EXPECT_EQ(pull.clock(), 4);
  EXPECT_FALSE(pull.latest());
  for (const int server : {0, 1}) hear(server, weights(server, 2, 4, 1.0F));
  EXPECT_EQ(next().step, 4);
}

TEST_F(Exchange, PushContainsItsPartsLossesAndTheNextPull) {
  make("strategy = sync\n");
  assign({0});
  const Task task = ready_at(0);
  ASSERT_EQ(task.kind, Task::kCompute);
  forget_sent();
  push(task);
  const auto first = sent_to(0);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].sender().term_id(), 11U);
  EXPECT_EQ(first[0].sender().incarnation(), 101U);
  EXPECT_EQ(first[0].push().number(), 1);
  EXPECT_EQ(first[0].push().step(), 0);
  EXPECT_EQ(first[0].push().parts_size(), 2);
  EXPECT_EQ(first[0].push().parts_total(), 2);
  EXPECT_EQ(first[0].push().losses_size(), 2);
  EXPECT_EQ(first[0].pull().clock(), 1);
  const auto second = sent_to(1);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].push().parts_size(), 1);
  EXPECT_EQ(second[0].push().losses_size(), 0) << "losses go to server 0 alone";
  EXPECT_EQ(second[0].pull().clock(), 1);
}

TEST_F(Exchange, UnalignedShareIsPushedAsItsSubtrees) {
  make("strategy = sync\n", 12);
  EXPECT_EQ(worker_->nodes({0, 3}), (std::vector<Range>{{0, 2}, {2, 3}}));
  EXPECT_EQ(worker_->nodes({3, 6}), (std::vector<Range>{{3, 4}, {4, 6}}));
  make("strategy = async\n", 12);
  EXPECT_EQ(worker_->nodes({0, 3}), (std::vector<Range>{{0, 3}}));
}

TEST_F(Exchange, WeightsOfTheNextStepMakeTheNextTask) {
  make("strategy = sync\n");
  assign({0});
  push(ready_at(0));
  EXPECT_EQ(next().kind, Task::kWait);
  answer(1, 9.0F, 1);
  const Task task = next();
  EXPECT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.step, 1);
  EXPECT_EQ(worker_->weights()[2999], 9.0F);
}

TEST_F(Exchange, LastStepIsEvaluatedAndEndsTheWork) {
  make("strategy = sync\n");
  assign({1});
  push(ready_at(9));
  answer(10, 1.0F, 1);
  const Task task = next();
  EXPECT_EQ(task.kind, Task::kEvaluate);
  EXPECT_EQ(task.step, 10);
  EXPECT_EQ(task.range, (Range{2, 4})) << "chunks of this share";
  worker_->finish_evaluation();
  EXPECT_EQ(next().kind, Task::kDone);
}

TEST_F(Exchange, NewShareIsComputedBeforeTheNextStep) {
  make("strategy = sync\n");
  assign({0});
  push(ready_at(0));  // the pull for step 1 waits for share 1, which has no owner
  forget_sent();
  assign({0, 1}, 2, 0);
  const Task task = next();
  EXPECT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.step, 0);
  EXPECT_EQ(task.range, (Range{2, 4}));
}

TEST_F(Exchange, OlderStateDoesNotRemoveAShare) {
  make("strategy = sync\n");
  assign({0}, 5);
  assign({}, 4);
  EXPECT_EQ(ready_at(0).kind, Task::kCompute);
  assign({}, 6);
  EXPECT_EQ(next().kind, Task::kWait);
}

TEST_F(Exchange, UpcomingTaskIsTheNextStep) {
  make("strategy = sync\n");
  assign({0});
  EXPECT_EQ(ready_at(3).step, 3);
  ASSERT_TRUE(worker_->upcoming());
  EXPECT_EQ(worker_->upcoming()->step, 4);
  EXPECT_EQ(worker_->upcoming()->range, (Range{0, 2}));
}

// ---- ssp ----

TEST_F(Exchange, SspPullsForTheClockOfItsShare) {
  make("strategy = ssp:2\n");
  assign({0}, 1, 3);
  EXPECT_EQ(next().kind, Task::kWait);
  const wire::Pull pull = newest_pull();
  EXPECT_EQ(pull.clock(), 3) << "the step that the coordinator assigned";
  EXPECT_FALSE(pull.latest());
  hear(0, weights(0, 1, 40, 1.0F));
  hear(1, weights(1, 1, 41, 1.0F));
  const Task task = next();
  EXPECT_EQ(task.step, 3);
  push(task);
  for (const int server : {0, 1}) {
    EXPECT_THAT(sent_to(server).back().push().read_versions(), testing::ElementsAre(40, 41));
  }
}

// A server's answer is cut into messages, some of which are lost.
TEST_F(Exchange, SlicesOfOneServerAreNeverOfTwoVersions) {
  make("strategy = ssp:2\n");
  assign({0}, 1, 3);
  next();
  const auto only = [&](int slice, int64_t version, float value) {
    Message message = weights(0, 1, version, value);
    auto* slices = message.header.mutable_weights()->mutable_slices();
    slices->erase(slice == 0 ? slices->begin() + 1 : slices->begin());
    message.payloads.erase(slice == 0 ? message.payloads.begin() + 1 : message.payloads.begin());
    return message;
  };
  hear(1, weights(1, 1, 7, 1.0F));
  hear(0, only(0, 40, 40.0F));
  later(1000);  // the pull is repeated; the server has updated meanwhile
  hear(0, only(2, 43, 43.0F));
  EXPECT_EQ(next().kind, Task::kWait) << "slice 0 is of version 40";
  hear(0, only(0, 40, 40.0F));
  EXPECT_EQ(next().kind, Task::kWait) << "the older version arrives again";
  hear(0, only(0, 43, 43.0F));
  const Task task = next();
  ASSERT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(worker_->weights()[0], 43.0F);
  EXPECT_EQ(worker_->weights()[2999], 43.0F);
  // complete: a newer answer to the same pull changes nothing
  hear(0, weights(0, 1, 50, 50.0F));
  EXPECT_EQ(worker_->weights()[0], 43.0F);
  push(task);
  EXPECT_THAT(sent_to(1).back().push().read_versions(), testing::ElementsAre(43, 7));
}

// Slices of an abandoned pull belong to no push.
TEST_F(Exchange, AbandonedPullDoesNotChangeTheVersionsOfTheWeightsInUse) {
  make("strategy = ssp:2\n");
  assign({0}, 1, 3);
  next();
  answer(10, 1.0F);
  push(next());
  forget_sent();
  hear(0, weights(0, 2, 20, 2.0F, 1));
  EXPECT_THAT(worker_->read_versions(), testing::ElementsAre(10, 10));
  EXPECT_EQ(worker_->weights()[0], 1.0F);
}

TEST_F(Exchange, SspPullsExactlyTheWeightsOfABarrier) {
  make("strategy = ssp:2\neval-every = 4\n");
  assign({0}, 1, 3);
  next();
  answer(10, 1.0F);
  push(next());
  const wire::Pull pull = newest_pull();
  EXPECT_EQ(pull.clock(), 4);
  EXPECT_TRUE(pull.barrier());
  for (const int server : {0, 1}) hear(server, weights(server, pull.number(), 12, 1.0F, 1));
  EXPECT_EQ(next().kind, Task::kEvaluate);
  worker_->finish_evaluation();
  EXPECT_EQ(next().kind, Task::kCompute);
}

// ---- async ----

wire::Lease lease(int64_t number, int64_t step, int lo, int hi, bool evaluate = false) {
  wire::Lease out;
  out.set_number(number);
  out.set_step(step);
  out.set_lo(lo);
  out.set_hi(hi);
  out.set_evaluate(evaluate);
  return out;
}

TEST_F(Exchange, AsyncWaitsForALeaseOfServerZero) {
  make("strategy = async\n");
  EXPECT_EQ(next().kind, Task::kWait);
  EXPECT_THAT(worker_->waiting_for(), HasSubstr("lease"));
  const auto asked = sent_to(0);
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_TRUE(asked[0].pull().lease_only());
  EXPECT_TRUE(sent_to(1).empty());
  Message granted = status(1, 0);
  *granted.header.mutable_status()->add_leases() = lease(1, 0, 0, 2);
  hear(0, granted);
  EXPECT_EQ(next().kind, Task::kWait) << "for weights";
  EXPECT_TRUE(sent_to(0).back().pull().want_lease());
  EXPECT_FALSE(sent_to(1).back().pull().want_lease());
}

class Leased : public Exchange {
 protected:
  Leased() {
    make("strategy = async\n");
    next();
  }
  void grant(const std::vector<wire::Lease>& leases) {
    Message granted = status(newest_pull().number(), 0);
    for (const wire::Lease& l : leases) *granted.header.mutable_status()->add_leases() = l;
    hear(0, granted);
  }
};

TEST_F(Leased, RepeatedLeaseIsComputedOnce) {
  grant({lease(1, 0, 0, 2)});
  next();
  const int64_t number = newest_pull().number();
  Message again = weights(0, number, 0, 1.0F);
  *again.header.mutable_weights()->add_leases() = lease(1, 0, 0, 2);
  *again.header.mutable_weights()->add_leases() = lease(2, 1, 2, 4);
  hear(0, again);
  hear(1, weights(1, number, 0, 1.0F));
  const Task first = next();
  EXPECT_EQ(first.kind, Task::kCompute);
  EXPECT_EQ(first.step, 0);
  ASSERT_TRUE(worker_->upcoming());
  EXPECT_EQ(worker_->upcoming()->step, 1);
  push(first);
  answer(1, 1.0F, 1);
  const Task second = next();
  EXPECT_EQ(second.step, 1);
  EXPECT_EQ(second.range, (Range{2, 4}));
}

TEST_F(Leased, LeasesOutsideTheRunAreNotComputed) {
  grant({lease(1, -1, 0, 2), lease(2, 11, 0, 2), lease(3, 0, -1, 2), lease(4, 0, 2, 2),
         lease(5, 0, 0, 5), lease(6, 0, INT_MIN, INT_MAX), lease(7, 10, 0, 5, true),
         lease(8, INT64_MAX, 0, 2)});
  EXPECT_EQ(next().kind, Task::kWait);
  EXPECT_THAT(worker_->waiting_for(), HasSubstr("lease")) << "all of them are ignored";
  grant({lease(9, 10, 0, 4, true)});
  next();
  answer(3, 1.0F);
  EXPECT_EQ(next().kind, Task::kEvaluate);
}

TEST_F(Leased, WeightsAreUsedForOnePushOnly) {
  grant({lease(1, 0, 0, 2), lease(2, 0, 2, 4)});
  next();
  answer(0, 1.0F);
  push(next());
  EXPECT_EQ(next().kind, Task::kWait) << "fresh weights first";
  answer(1, 2.0F, 1);
  EXPECT_EQ(next().kind, Task::kCompute);
  EXPECT_EQ(worker_->weights()[0], 2.0F);
}

// Server 1 waits for a lease that a lost worker has returned before it hands out the weights at
// step 10. The State has that lease.
TEST_F(Leased, PullThatWaitsForAnEarlierLeaseIsGivenUp) {
  grant({lease(1, 10, 0, 2, true), lease(2, 10, 2, 4, true)});
  next();
  const wire::Pull evaluation = newest_pull();
  EXPECT_EQ(evaluation.clock(), 10);
  hear(0, weights(0, evaluation.number(), 7, 1.0F));
  wire::State state;
  state.set_version(1);
  *state.add_leases() = lease(1, 10, 0, 2, true);
  *state.add_leases() = lease(2, 10, 2, 4, true);
  worker_->on_state(state, now_);
  EXPECT_THAT(worker_->waiting_for(), HasSubstr("weights of step 10 of server 1"));
  state.set_version(2);
  *state.add_leases() = lease(3, 3, 0, 2);
  worker_->on_state(state, now_);
  next();
  const wire::Pull earlier = newest_pull();
  EXPECT_GT(earlier.number(), evaluation.number());
  EXPECT_EQ(earlier.clock(), 3);
  for (const int server : {0, 1}) hear(server, weights(server, earlier.number(), 7, 1.0F));
  const Task task = next();
  EXPECT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.step, 3);
  push(task);
  answer(8, 1.0F, 1);
  EXPECT_EQ(next().kind, Task::kEvaluate);
}

// Server 0's answer may be lost, and the State has the lease.
TEST_F(Leased, LeaseInTheStateEndsTheWaitForOne) {
  wire::State state;
  state.set_version(1);
  *state.add_leases() = lease(1, 0, 0, 2);
  worker_->on_state(state, now_);
  next();
  answer(0, 1.0F);
  EXPECT_EQ(next().kind, Task::kCompute);
}

TEST_F(Leased, SilenceOfServerZeroEndsTheWaitForALease) {
  const auto wait_long = [&] {
    for (int i = 0; i < 20; ++i) later(1000);
  };
  try {
    wait_long();
    FAIL() << "waits for ever";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("server 0"));
    EXPECT_THAT(e.what(), HasSubstr("a lease"));
  }
}

TEST_F(Exchange, PushThatAsksForAnAcknowledgementContainsNoPull) {
  setup_.acknowledge = true;
  make("");
  assign({0});
  push(ready_at(0));
  EXPECT_GT(worker_->unacknowledged(), 0);
  for (const int server : {0, 1}) {
    for (const auto& exchange : sent_to(server)) {
      EXPECT_TRUE(exchange.push().acknowledge());
      EXPECT_FALSE(exchange.has_pull());
    }
  }
  hear(0, status(0, 1));
  EXPECT_GT(worker_->unacknowledged(), 0);
  hear(1, status(0, 1));
  EXPECT_EQ(worker_->unacknowledged(), 0);
  EXPECT_EQ(next().kind, Task::kWait);
  EXPECT_EQ(newest_pull().clock(), 1);
}

}  // namespace
}  // namespace pushpull
