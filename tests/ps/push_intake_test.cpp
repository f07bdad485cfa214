#include "ps/server/push_intake.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/ps/refusals.h"
#include "tests/ps/rule_fixture.h"

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

namespace {

class PushIntakeTest : public RuleTest {
 protected:
  PushIntakeTest() {
    make("strategy = async\n");
    setup_ = server_setup(job_, kElements);
    intake_ = std::make_unique<PushIntake>(PushIntake::Division{2, 4}, Grants(setup_.grant_key),
                                           gate_->barriers(), *shard_, *rule_);
    intake_->on_members({{kAnna, 0}, {kBert, 1}});
  }
  // Checks a message of kAnna and takes it if it is valid.
  Checked take(Message message) {
    const wire::Push& push = message.header.exchange().push();
    Checked refusal = intake_->check(kAnna, push, message.payloads);
    if (!refusal) intake_->take(kAnna, push, message.payloads);
    return refusal;
  }
  Message push(int64_t number, int64_t step = 0, Range share = {0, 2}) const {
    return push_message(setup_, kAnna, number, step, share, 1.0F);
  }
  // Returns the message with only one of its two parts.
  static Message half_of(Message message, int part) {
    wire::Push* push = message.header.mutable_exchange()->mutable_push();
    push->mutable_parts()->DeleteSubrange(1 - part, 1);
    message.payloads.erase(message.payloads.begin() + (1 - part));
    return message;
  }

  ServerSetup setup_;
  std::unique_ptr<PushIntake> intake_;
};

TEST_F(PushIntakeTest, MessagesOfAPushAreMerged) {
  EXPECT_TRUE(taken(take(half_of(push(1), 1))));
  EXPECT_FALSE(intake_->complete(kAnna, 1));
  int waiting = 0;
  intake_->for_waiting([&](PartialSum&) { ++waiting; });
  EXPECT_EQ(waiting, 1);
  EXPECT_TRUE(taken(take(push(1)))) << "a repeat with the missing part";
  EXPECT_TRUE(intake_->complete(kAnna, 1));
  EXPECT_EQ(intake_->through(kAnna), 1);
  EXPECT_EQ(intake_->bytes(), kElements * 4) << "each part counts once";
  rule_->apply_due();
  EXPECT_EQ(rule_->updates(), 1);
  EXPECT_TRUE(taken(take(push(1))));
  rule_->apply_due();
  EXPECT_EQ(rule_->updates(), 1) << "the push was complete";
}

TEST_F(PushIntakeTest, SharesMayChangeAtAStep) {
  wire::State state;
  wire::Cut* cut = state.add_cuts();
  cut->set_from_step(2);
  cut->set_shares(4);
  for (int i = 0; i < 2; ++i) intake_->on_cuts(state);  // each state repeats the cut
  EXPECT_TRUE(taken(take(push(1, 1))));
  EXPECT_TRUE(taken(take(push(2, 2, {0, 1}))));
  EXPECT_EQ(line_of(take(push(3, 2))),
            "[push-share] expected one of the 4 shares of a step, got [0, 2)");
  EXPECT_EQ(line_of(take(push(3, 1, {0, 1}))),
            "[push-share] expected one of the 2 shares of a step, got [0, 1)");
  cut->set_from_step(3);
  cut->set_shares(5);
  intake_->on_cuts(state);
  EXPECT_TRUE(taken(take(push(3, 3, {0, 1})))) << "there are only 4 micro-batches";
}

TEST_F(PushIntakeTest, InvalidPushIsRefusedWithWhatWasExpected) {
  EXPECT_EQ(line_of(take(push(1, 0, {1, 3}))),
            "[push-share] expected one of the 2 shares of a step, got [1, 3)");
  EXPECT_EQ(line_of(take(push(19))), "[push-number] expected 1 to 18, got 19");
  EXPECT_EQ(line_of(take(push(1, 10))),
            "[push-step] expected a step that begins a round in [0, 10), got 10");
  take(half_of(push(1), 0));
  EXPECT_EQ(line_of(take(push(1, 0, {2, 4}))),
            "[push-other] expected more of push 1, step 0, share [0, 2), got step 0, share [2, 4)");
  Message few = push(2);
  few.header.mutable_exchange()->mutable_push()->set_parts_total(1);
  EXPECT_EQ(line_of(take(few)), "[push-parts] expected 2, got 1");
  for (const double rate : {-0.5, std::numeric_limits<double>::quiet_NaN()}) {
    Message wrong = push(2);
    wrong.header.mutable_exchange()->mutable_push()->set_learning_rate(rate);
    EXPECT_EQ(line_of(take(wrong)),
              "[push-rate] expected a finite learning rate from 0, got " + std::to_string(rate));
  }
  Message small = push(2);
  small.payloads[1] = constant_payload(7, 1.0F);
  EXPECT_EQ(line_of(take(small)),
            "[push-payload] expected 1024 gradients of slice 1 in the job's codec, got 28 bytes");
}

TEST_F(PushIntakeTest, HighestNumberIsRefusedWithoutOverflow) {
  Message last = push(INT64_MAX);
  EXPECT_EQ(reason_of(take(last)), "push-number");
  last.header.mutable_exchange()->mutable_push()->set_first(INT64_MAX);
  EXPECT_EQ(line_of(take(last)),
            "[push-number] expected 1 to 4611686018427387904, got 9223372036854775807");
  Message far = push(int64_t{1} << 62);
  far.header.mutable_exchange()->mutable_push()->set_first(int64_t{1} << 62);
  EXPECT_TRUE(taken(take(far)));
  EXPECT_EQ(intake_->through(kAnna), int64_t{1} << 62);
  EXPECT_EQ(reason_of(take(push((int64_t{1} << 62) + 1))), "push-number");
}

TEST_F(PushIntakeTest, EveryPushNeedsItsGrant) {
  EXPECT_TRUE(taken(take(push(1))));
  EXPECT_TRUE(taken(take(push(2, 1))));
  const auto spoilt = [&](auto spoil) {
    Message message = push(3, 2);
    spoil(*message.header.mutable_exchange()->mutable_push());
    return reason_of(take(message));
  };
  EXPECT_EQ(spoilt([](wire::Push& p) { (*p.mutable_grant()->mutable_mac())[3] ^= 1; }),
            "push-grant");
  EXPECT_EQ(spoilt([](wire::Push& p) { p.mutable_grant()->set_to_step(2); }), "push-grant");
  EXPECT_EQ(spoilt([](wire::Push& p) { p.clear_grant(); }), "push-grant");
  Message of_bert = push_message(setup_, kBert, 1, 2, {0, 2}, 1.0F);
  of_bert.header.mutable_exchange()->mutable_push()->set_number(3);
  EXPECT_EQ(reason_of(take(of_bert)), "push-grant") << "take sends it as kAnna";
  EXPECT_TRUE(taken(take(push(3, 2))));
}

TEST_F(PushIntakeTest, EveryMessageOfAnOpenPushNeedsItsGrant) {
  EXPECT_TRUE(taken(take(half_of(push(1), 0))));
  const int64_t bytes = intake_->bytes();
  const auto spoilt = [&](int part, auto spoil) {
    Message message = half_of(push(1), part);
    wire::Push* forged = message.header.mutable_exchange()->mutable_push();
    forged->set_losses(0, 1e9F);
    spoil(*forged);
    return reason_of(take(message));
  };
  for (const int part : {0, 1}) {
    SCOPED_TRACE(part == 0 ? "no new part" : "the other part");
    EXPECT_EQ(spoilt(part, [](wire::Push& p) { (*p.mutable_grant()->mutable_mac())[15] ^= 1; }),
              "push-grant");
    EXPECT_EQ(spoilt(part, [](wire::Push& p) { p.mutable_grant()->mutable_mac()->resize(15); }),
              "push-grant");
    EXPECT_EQ(spoilt(part, [](wire::Push& p) { p.mutable_grant()->set_to_step(2); }), "push-grant");
    EXPECT_EQ(spoilt(part, [](wire::Push& p) { p.clear_grant(); }), "push-grant");
    EXPECT_EQ(spoilt(part,
                     [&](wire::Push& p) {
                       *p.mutable_grant() = Grants(setup_.grant_key).make(kAnna, {2, 4}, {0, 10});
                     }),
              "push-grant")
        << "the grant of another push of this worker";
    EXPECT_EQ(spoilt(part,
                     [&](wire::Push& p) {
                       *p.mutable_grant() = Grants(setup_.grant_key).make(kBert, {0, 2}, {0, 10});
                     }),
              "push-grant")
        << "the grant of another worker";
  }
  EXPECT_FALSE(intake_->complete(kAnna, 1));
  EXPECT_EQ(intake_->bytes(), bytes);
  EXPECT_TRUE(taken(take(half_of(push(1), 1)))) << "the genuine message";
  EXPECT_TRUE(intake_->complete(kAnna, 1));
}

TEST_F(PushIntakeTest, RepeatOfACompletePushNeedsItsGrant) {
  EXPECT_TRUE(taken(take(half_of(push(1), 0))));
  EXPECT_TRUE(taken(take(push(3, 2))));
  Message forged = push(3, 2);
  wire::Push* repeat = forged.header.mutable_exchange()->mutable_push();
  repeat->clear_grant();
  repeat->set_first(3);
  EXPECT_EQ(reason_of(take(forged)), "push-grant");
  EXPECT_EQ(intake_->through(kAnna), 0) << "push 1 is open, and push 2 has not arrived";
  EXPECT_TRUE(taken(take(push(3, 2)))) << "the genuine repeat";
  EXPECT_TRUE(taken(take(half_of(push(1), 1))));
  EXPECT_TRUE(taken(take(push(2, 1))));
  EXPECT_EQ(intake_->through(kAnna), 3);
  rule_->apply_due();
  EXPECT_EQ(rule_->updates(), 3);
}

TEST_F(PushIntakeTest, AggregationRefusesInvalidReadVersions) {
  Message early = push(1);
  early.header.mutable_exchange()->mutable_push()->set_read_versions(0, 5);
  EXPECT_EQ(reason_of(take(early)), "push-reads");
  EXPECT_EQ(intake_->bytes(), 0);
}

TEST_F(PushIntakeTest, RemovedWorkerHasNoOpenPush) {
  take(half_of(push(1), 0));
  intake_->on_members({{kBert, 1}});
  int waiting = 0;
  intake_->for_waiting([&](PartialSum&) { ++waiting; });
  EXPECT_EQ(waiting, 0);
  intake_->on_members({{kAnna, 0}, {kBert, 1}});
  EXPECT_EQ(intake_->through(kAnna), 0);
}

}  // namespace

}  // namespace pushpull
