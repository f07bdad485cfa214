#include "ps/server/pull_queue.h"

#include <gtest/gtest.h>

#include "tests/ps/refusals.h"
#include "tests/ps/rule_fixture.h"

namespace pushpull {
namespace {

constexpr size_t kSlices = 4;
const std::vector<int> kNumbers{0, 2, 4, 6};  // the other slices belong to another server

wire::Pull pull_of(int connection = 0, int connections = 1) {
  wire::Pull pull;
  pull.set_number(1);
  pull.set_lane(connection);
  pull.set_lanes(connections);
  return pull;
}

TEST(PendingPull, EachConnectionCarriesItsPartOfTheSlices) {
  const PendingPull first("a", pull_of(0, 3), kNumbers, true);
  const PendingPull second("b", pull_of(1, 3), kNumbers, true);
  for (const size_t place : {0, 3}) EXPECT_TRUE(first.wants(place));
  EXPECT_FALSE(first.wants(1));
  EXPECT_TRUE(second.wants(1));
  EXPECT_FALSE(second.wants(0));
}

TEST(PendingPull, ReceivedBytesReopenAFullWindow) {
  wire::Pull pull = pull_of();
  pull.set_window_bytes(100);
  PendingPull pending("a", pull, kNumbers, true);
  pending.on_sent(0, 60);
  EXPECT_FALSE(pending.window_is_full());
  pending.on_sent(1, 60);
  EXPECT_TRUE(pending.window_is_full());
  pending.on_received(50);
  EXPECT_FALSE(pending.window_is_full());
  pending.on_received(INT64_MAX);
  pending.on_sent(2, 100);
  EXPECT_TRUE(pending.window_is_full()) << "more than was sent cannot have arrived";
  EXPECT_FALSE(pending.all_sent());
  pending.on_sent(3, 1);
  EXPECT_TRUE(pending.all_sent());
}

TEST(PendingPull, OnlySlicesSentBeforeAHeardReportAreResent) {
  PendingPull pending("a", pull_of(), kNumbers, true);
  pending.on_sent(0, 10);
  wire::Pull again = pull_of();
  again.set_asked(1);
  for (const int slice : {0, 2}) again.add_missing(slice);
  pending.repeat(again, kNumbers, 2);
  EXPECT_FALSE(pending.wants(0)) << "it may be in flight";
  pending.on_progress_report(kNumbers);
  pending.on_sent(1, 10);
  again.set_asked(2);
  pending.repeat(again, kNumbers, 2);
  EXPECT_FALSE(pending.wants(0)) << "the client has not heard the report";
  again.set_asked(3);
  again.set_heard(1);
  pending.repeat(again, kNumbers, 2);
  EXPECT_TRUE(pending.wants(0)) << "it was lost";
  EXPECT_FALSE(pending.wants(1)) << "it was sent after the report";
}

TEST(PendingPull, MissingSlicesOfAnotherServerAreIgnored) {
  PendingPull pending("a", pull_of(), kNumbers, true);
  for (size_t place = 0; place < kSlices; ++place) pending.on_sent(place, 10);
  pending.close();
  wire::Pull again = pull_of();
  again.set_asked(1);
  pending.repeat(again, kNumbers, 2);
  pending.on_progress_report(kNumbers);
  again.set_asked(2);
  again.set_heard(1);
  for (const int slice : {1, -3, 8, 1000000}) again.add_missing(slice);
  pending.repeat(again, kNumbers, 2);
  EXPECT_FALSE(pending.open());
  EXPECT_TRUE(pending.all_sent());
}

}  // namespace

namespace {

// Aggregation with answers set by the test.
class FakeRule : public Aggregation {
 public:
  using Aggregation::Aggregation;
  using Aggregation::check;
  Checked check(const wire::Push& /*push*/) const override { return {}; }
  void take_part(ReceivedPush& /*push*/, int /*slice*/, PartialSum /*part*/) override {}
  void take_push(ReceivedPush /*push*/) override {}
  bool apply_due() override { return false; }
  bool try_open_barrier() override { return false; }
  std::optional<SliceAnswer> answer(const wire::Pull& /*pull*/, int slice) const override {
    const auto found = ready.find(slice);
    if (found == ready.end()) return std::nullopt;
    return SliceAnswer{constant_payload(1024, 1.0F), found->second};
  }
  bool asks_for_one_version(const wire::Pull& /*pull*/) const override { return one_version; }

  std::map<int, int64_t> ready;  // version by slice
  bool one_version = true;
};

class PullQueueTest : public RuleTest {
 protected:
  PullQueueTest() {
    make("");
    fake_ = std::make_unique<FakeRule>(AggregationSetup{job_, *shard_, *gate_, serial_, observer_});
    PullQueueSetup setup;
    setup.slices = {0, 1, 2};
    setup.slice_elements = 1024;
    setup.end_step = 10;
    queue_ = std::make_unique<PullQueue>(setup, *fake_, observer_, [](uint64_t) { return 42; });
    queue_->on_members({{kAnna, 0}});
  }
  static wire::Pull pull(int connection = 0, int connections = 1, int64_t number = 1) {
    wire::Pull out;
    out.set_number(number);
    out.set_lane(connection);
    out.set_lanes(connections);
    return out;
  }
  void ask(const wire::Pull& pull) {
    ASSERT_TRUE(taken(queue_->check(kAnna, pull)));
    queue_->take("anna" + std::to_string(pull.lane()), kAnna, pull);
  }
  // Returns the slices that are sent now, in order.
  std::vector<int> sent() {
    outbox_.clear();
    queue_->answer_all(outbox_);
    std::vector<int> out;
    for (const Outgoing& o : outbox_) {
      for (const auto& slice : o.message.header.weights().slices()) out.push_back(slice.slice());
    }
    return out;
  }

  std::unique_ptr<FakeRule> fake_;
  std::unique_ptr<PullQueue> queue_;
  Outbox outbox_;
};

TEST_F(PullQueueTest, SlicesAreSentOnceAndAsTheyBecomeReady) {
  ask(pull());
  EXPECT_EQ(sent(), std::vector<int>{});
  fake_->ready[1] = 5;
  EXPECT_EQ(sent(), std::vector<int>{1});
  EXPECT_EQ(outbox_[0].message.header.weights().slices(0).version(), 5);
  EXPECT_EQ(outbox_[0].message.header.weights().pushes_through(), 42);
  fake_->ready[0] = fake_->ready[2] = 5;
  EXPECT_EQ(sent(), (std::vector<int>{0, 2}));
  EXPECT_EQ(sent(), std::vector<int>{});
  EXPECT_EQ(queue_->bytes(), 3 * 4096);
}

TEST_F(PullQueueTest, WithoutAVersionAllConnectionsAreAnsweredTogether) {
  fake_->one_version = false;
  fake_->ready = {{0, 3}, {1, 3}, {2, 3}};
  ask(pull(0, 2));
  EXPECT_EQ(sent(), std::vector<int>{}) << "the other connection has not asked";
  ask(pull(1, 2));
  EXPECT_EQ(sent(), (std::vector<int>{0, 2, 1}));
}

TEST_F(PullQueueTest, NewerPullReplacesAnOlderOne) {
  ask(pull(0, 1, 2));
  ask(pull(0, 1, 1));
  fake_->ready = {{0, 3}, {1, 3}, {2, 3}};
  EXPECT_EQ(sent().size(), 3U);
  EXPECT_EQ(outbox_[0].message.header.weights().pull(), 2);
}

TEST_F(PullQueueTest, RepeatedPullIsToldItsProgress) {
  ask(pull());
  EXPECT_TRUE(sent().empty());
  EXPECT_TRUE(outbox_.empty());
  wire::Pull again = pull();
  again.set_asked(1);
  ask(again);
  sent();
  ASSERT_EQ(outbox_.size(), 1U);
  EXPECT_EQ(outbox_[0].message.header.status().asked(), 1);
  EXPECT_EQ(outbox_[0].message.header.status().pushes_through(), 42);
}

TEST_F(PullQueueTest, RepeatOfALostPullIsToldItsProgress) {
  wire::Pull again = pull();
  again.set_asked(1);
  ask(again);
  sent();
  ASSERT_EQ(outbox_.size(), 1U);
  EXPECT_EQ(outbox_[0].message.header.status().asked(), 1);
  EXPECT_EQ(outbox_[0].message.header.status().pushes_through(), 42);
}

TEST_F(PullQueueTest, InvalidPullIsRefusedWithItsReason) {
  EXPECT_EQ(reason_of(queue_->check(kAnna, pull(0, 1, 0))), "pull-number");
  EXPECT_EQ(line_of(queue_->check(kAnna, pull(2, 2))),
            "[pull-connection] expected one of at most 16 connections, got connection 2 of 2");
  wire::Pull late = pull();
  late.set_clock(11);
  EXPECT_EQ(line_of(queue_->check(kAnna, late)), "[pull-clock] expected 0 to 10, got 11");
  wire::Pull negative = pull();
  negative.set_window_bytes(-1);
  EXPECT_EQ(reason_of(queue_->check(kAnna, negative)), "pull-count");
  ask(pull(0, 2));
  EXPECT_EQ(reason_of(queue_->check(kAnna, pull(1, 3))), "pull-other");
  wire::Received received;
  received.set_bytes(-1);
  EXPECT_EQ(reason_of(PullQueue::check(received)), "received-count");
}

TEST_F(PullQueueTest, RemovedWorkerIsNotAnswered) {
  ask(pull());
  queue_->on_members({});
  fake_->ready[0] = 1;
  EXPECT_TRUE(sent().empty());
}

}  // namespace

}  // namespace pushpull
