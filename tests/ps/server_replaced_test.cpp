// A server that replaces a lost one. Workers send it again all pushes since the copy that it was
// loaded with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ps/refusals.h"
#include "tests/ps/server_fixture.h"

namespace pushpull {
namespace {

class Replaced : public ServerTest {
 protected:
  void begin(const std::string& keys, bool replays = true) {
    setup_ = server_setup(job_of(keys), kServerElements);
    setup_.start_step = 4;
    setup_.replays = replays;
    make_from_setup();
  }
  Checked push_from(uint64_t who, int64_t number, int64_t first, int64_t step, Range share) {
    Message message = push_message(setup_, who, number, step, share, 1.0F);
    message.header.mutable_exchange()->mutable_push()->set_first(first);
    return server_->on_data(peer_of(who), std::move(message));
  }
};

TEST_F(Replaced, PushesOfLaterStepsWaitForTheOthers) {
  begin("recovery = peers\n");
  for (int64_t i = 0; i < 4; ++i) EXPECT_TRUE(taken(push_from(kAnna, 6 + i, 6, 4 + i, kFirst)));
  EXPECT_EQ(server_->floor(), 4);
  EXPECT_TRUE(taken(push_from(kBert, 10, 9, 5, kSecond)));
  EXPECT_TRUE(taken(push_from(kBert, 9, 9, 4, kSecond)));
  EXPECT_EQ(server_->floor(), 6);
  EXPECT_TRUE(taken(push_from(kBert, 11, 9, 6, kSecond)));
  EXPECT_TRUE(taken(push_from(kBert, 12, 9, 7, kSecond)));
  EXPECT_EQ(server_->floor(), 8);
}

TEST_F(Replaced, PushOfALaterStepNeedsItsGrant) {
  begin("recovery = peers\n");
  Message forged = push_message(setup_, kAnna, 7, 5, kFirst, 1e30F);
  forged.header.mutable_exchange()->mutable_push()->set_first(6);
  forged.header.mutable_exchange()->mutable_push()->clear_grant();
  // more than the room of a worker
  for (int i = 0; i < 40; ++i) {
    forged.header.mutable_exchange()->mutable_push()->set_data_hash(std::string(1 << 20, 'x'));
    EXPECT_EQ(reason_of(server_->on_data("forger", forged)), "push-grant");
    forged.header.mutable_exchange()->mutable_push()->set_number(8 + i);
  }
  EXPECT_TRUE(taken(push_from(kAnna, 6, 6, 4, kFirst)));
  EXPECT_TRUE(taken(push_from(kAnna, 7, 6, 5, kFirst))) << "the forgery has not taken its place";
  EXPECT_TRUE(taken(push_from(kBert, 9, 9, 4, kSecond)));
  EXPECT_TRUE(taken(push_from(kBert, 10, 9, 5, kSecond)));
  EXPECT_EQ(server_->floor(), 6);
}

TEST_F(Replaced, PushThatIsRefusedWhenItsStepBeginsIsReported) {
  begin("recovery = peers\n");
  Message broken = push_message(setup_, kAnna, 7, 5, kFirst, 1.0F);
  broken.header.mutable_exchange()->mutable_push()->set_first(6);
  broken.payloads[0] = constant_payload(7, 1.0F);
  EXPECT_TRUE(taken(server_->on_data("anna", std::move(broken))));
  push_from(kAnna, 6, 6, 4, kFirst);
  EXPECT_TRUE(server_->take_dropped().empty());
  push_from(kBert, 9, 9, 4, kSecond);
  const std::vector<Dropped> dropped = server_->take_dropped();
  ASSERT_EQ(dropped.size(), 1U);
  EXPECT_EQ(dropped[0].from, "anna");
  EXPECT_THAT(dropped[0].refusal.line(),
              testing::AllOf(testing::StartsWith("[push-payload] expected"),
                             testing::EndsWith("got 28 bytes from worker 0")));
  EXPECT_TRUE(dropped[0].refusal.from_member);
  EXPECT_TRUE(server_->take_dropped().empty());
  EXPECT_TRUE(taken(push_from(kAnna, 7, 6, 5, kFirst))) << "its place is free";
}

TEST_F(Replaced, StepBehindTheRunIsRefusedAtOnce) {
  begin("recovery = peers\n");
  for (const int64_t step : {int64_t{10}, INT64_MAX}) {
    EXPECT_EQ(reason_of(push_from(kAnna, 6, 6, step, kFirst)), "push-step");
  }
}

TEST_F(Replaced, AcknowledgesFromTheFirstPush) {
  begin("recovery = peers\n");
  push_from(kAnna, 36, 36, 4, kFirst);
  push_from(kBert, 36, 36, 4, kSecond);
  EXPECT_TRUE(taken(pull(kAnna, 1, 5)));
  int64_t through = 0;
  for (const Outgoing& out : server_->take_outgoing()) {
    if (out.message.header.has_weights()) through = out.message.header.weights().pushes_through();
  }
  EXPECT_EQ(through, 36);
}

TEST_F(Replaced, FirstPushMayNotFollowThePush) {
  begin("recovery = peers\n");
  EXPECT_EQ(reason_of(push_from(kAnna, 6, 7, 4, kFirst)), "push-first");
  EXPECT_EQ(reason_of(push_from(kAnna, 6, -1, 4, kFirst)), "push-first");
  EXPECT_EQ(reason_of(push_from(kAnna, 60, 6, 4, kFirst)), "push-number");
}

TEST_F(Replaced, VersionsBeforeItsCopyArePast) {
  begin("recovery = peers\n");
  EXPECT_TRUE(taken(pull(kAnna, 1, 2)));
  EXPECT_FALSE(answered(kAnna));
}

TEST_F(Replaced, OtherServersRefuseEarlyPushes) {
  begin("recovery = peers\n", false);
  EXPECT_EQ(reason_of(push_from(kAnna, 1, 0, 5, kFirst)), "push-early");
  EXPECT_EQ(reason_of(pull(kAnna, 1, 2)), "pull-clock");
}

}  // namespace
}  // namespace pushpull
