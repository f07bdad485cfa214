// Tests the worker's exchange with servers that do not answer, and with invalid answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <string>

#include "common/base/error.h"
#include "tests/worker/exchange_fixture.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// ---- silence ----

TEST_F(Exchange, UnansweredPullIsRepeatedAfterASecond) {
  make("strategy = sync\n");
  assign({0});
  next();
  forget_sent();
  later(999);
  EXPECT_TRUE(worker_->take_outgoing().empty());
  later(1);
  EXPECT_EQ(sent_to(0).size(), 1U);
  EXPECT_EQ(sent_to(1).size(), 1U);
  hear(1, weights(1, 1, 0, 1.0F));
  later(1000);
  EXPECT_EQ(sent_to(0).size(), 1U);
  EXPECT_TRUE(sent_to(1).empty()) << "server 1 has answered";
}

// The answer to a repeated pull contains all slices again, which would never end on a slow link.
TEST_F(Exchange, PartlyAnsweredPullIsRepeatedASecondAfterTheLastPart) {
  make("strategy = sync\n");
  assign({0});
  next();
  const Message whole = weights(0, 1, 0, 1.0F);
  Message first;
  Message second;
  for (Message* half : {&first, &second}) half->header = whole.header;
  first.header.mutable_weights()->mutable_slices()->RemoveLast();
  first.payloads = {whole.payloads[0]};
  second.header.mutable_weights()->mutable_slices()->DeleteSubrange(0, 1);
  second.payloads = {whole.payloads[1]};
  forget_sent();
  later(800);
  hear(0, first);
  later(800);
  EXPECT_TRUE(sent_to(0).empty()) << "a part came 0.8 s ago";
  EXPECT_EQ(sent_to(1).size(), 1U) << "nothing has arrived from server 1";
  later(200);
  EXPECT_EQ(sent_to(0).size(), 1U) << "the rest is lost";
  hear(0, second);
  later(1000);
  EXPECT_TRUE(sent_to(0).empty());
}

TEST_F(Exchange, LostPushIsResentWhole) {
  make("strategy = sync\n");
  assign({0});
  push(ready_at(0));
  const auto sent = sent_to(0);
  const int64_t pull = sent[0].pull().number();
  hear(0, status(pull, 0, false, 0));
  EXPECT_TRUE(sent_to(0).empty()) << "a status that answers no repetition shows no loss";
  later(1000);
  EXPECT_EQ(sent_to(0).back().push().parts_size(), 0) << "the repetition is a question";
  hear(0, status(pull, 0));
  auto again = sent_to(0);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].push().DebugString(), sent[0].push().DebugString());
  hear(0, status(pull, 0));
  EXPECT_TRUE(sent_to(0).empty()) << "asked before the push was repeated";
  hear(0, status(pull, 1));
  EXPECT_TRUE(sent_to(0).empty()) << "the push has arrived: only other workers' pushes are missing";
  hear(0, status(pull - 1, 0));
  EXPECT_TRUE(sent_to(0).empty()) << "an answer to an older question";
}

TEST_F(Exchange, AnswerShowsWhichPushesHaveArrived) {
  make("strategy = sync\n");
  assign({0});
  push(ready_at(0));
  const int64_t pull = newest_pull().number();
  hear(0, weights(0, pull, 1, 1.0F, 1));
  hear(1, status(pull, 0));
  EXPECT_TRUE(sent_to(0).empty());
  EXPECT_EQ(sent_to(1).size(), 1U) << "server 1 lacks the push";
}

TEST_F(Exchange, ServerThatIsNotReadyIsAskedEvery20Ms) {
  make("strategy = sync\n");
  assign({0});
  next();
  for (int i = 0; i < 1000; ++i) {
    forget_sent();
    for (const int server : {0, 1}) EXPECT_TRUE(hear(server, status(1, 0, true)));
    later(20);
    ASSERT_EQ(sent_to(0).size(), 1U) << i;
  }
}

TEST_F(Exchange, SilenceBeyondTheDeadlineNamesTheServer) {
  make("strategy = sync\nheartbeat-timeout = 5\n");
  assign({0});
  next();
  hear(0, weights(0, 1, 0, 1.0F));
  std::string text;
  for (int i = 0; i < 10 && text.empty(); ++i) {
    try {
      later(1000);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnreachable);
      text = e.what();
      EXPECT_EQ(i, 5);
    }
  }
  EXPECT_THAT(text, HasSubstr("server 1 has not answered for 6 s"));
  EXPECT_THAT(text, HasSubstr("weights of step 0"));
}

TEST_F(Exchange, StoppedWorkerDoesNotCountItsOwnPauseAsSilence) {
  make("strategy = sync\nheartbeat-timeout = 5\n");
  assign({0});
  next();
  EXPECT_NO_THROW(later(3'600'000)) << "nothing was repeated while it slept";
  for (const int server : {0, 1}) hear(server, weights(server, 1, 0, 1.0F));
  EXPECT_EQ(next().kind, Task::kCompute);
}

TEST_F(Exchange, ServerThatAnswersWithAStatusIsNotSilent) {
  make("strategy = sync\nheartbeat-timeout = 5\n");
  assign({0});
  push(ready_at(0));
  const int64_t pull = newest_pull().number();
  for (int i = 0; i < 100; ++i) {
    EXPECT_NO_THROW(later(1000));
    for (const int server : {0, 1}) hear(server, status(pull, 1));
  }
}

TEST_F(Exchange, RefusalOfAServerIsLoggedOnceAndQuotedInTheError) {
  make("strategy = sync\nheartbeat-timeout = 5\n");
  assign({0});
  push(ready_at(0));
  Message refusal;
  refusal.header.mutable_status()->set_refused("[push-share] expected \x1b, got [0, 2)");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(hear(1, refusal));
  const std::vector<std::string> warnings = worker_->take_warnings();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0],
              HasSubstr("server 1 has dropped a message of this worker: [push-share]"));
  EXPECT_EQ(warnings[0].find('\x1b'), std::string::npos) << "it comes from the network";
  std::string text;
  for (int i = 0; i < 10 && text.empty(); ++i) {
    hear(0, status(newest_pull().number(), 1));
    try {
      later(1000);
    } catch (const Error& e) {
      text = e.what();
    }
  }
  EXPECT_THAT(text, HasSubstr("server 1 has not answered for 6 s"));
  EXPECT_THAT(text, HasSubstr("it has dropped a message of this worker: [push-share] expected"));
}

// ---- invalid messages ----

TEST_F(Exchange, InvalidWeightsAreIgnored) {
  make("strategy = sync\n");
  assign({0});
  next();
  Message old = weights(0, 0, 0, 666.0F);
  EXPECT_TRUE(hear(0, old));
  Message stolen = weights(1, 1, 0, 666.0F);  // slices of server 1, from server 0
  EXPECT_TRUE(hear(0, stolen));
  for (const int slice : {-1, 3, INT_MAX, INT_MIN}) {
    Message nowhere = weights(0, 1, 0, 666.0F);
    for (auto& entry : *nowhere.header.mutable_weights()->mutable_slices()) entry.set_slice(slice);
    EXPECT_TRUE(hear(0, nowhere));
  }
  Message negative = weights(0, 1, -1, 666.0F);
  EXPECT_TRUE(hear(0, negative));
  for (const int64_t n : {0, 1023, 1025}) {
    Message size = weights(0, 1, 0, 666.0F);
    for (Payload& p : size.payloads) p = constant(n, 666.0F);
    EXPECT_TRUE(hear(0, size));
  }
  EXPECT_EQ(next().kind, Task::kWait) << "none of these was accepted";
  for (const int server : {0, 1}) hear(server, weights(server, 1, 0, 1.0F));
  Message late = weights(0, 1, 0, 666.0F);
  EXPECT_TRUE(hear(0, late));
  ASSERT_EQ(next().kind, Task::kCompute);
  for (const float w : worker_->weights()) ASSERT_EQ(w, 1.0F);
}

TEST_F(Exchange, RepeatedSliceIsIgnored) {
  make("strategy = sync\n");
  assign({0});
  next();
  Message first = weights(0, 1, 0, 1.0F);
  hear(0, first);
  hear(0, weights(0, 1, 0, 666.0F));
  EXPECT_EQ(next().kind, Task::kWait) << "server 1 is still missing";
  hear(1, weights(1, 1, 0, 1.0F));
  next();
  EXPECT_EQ(worker_->weights()[0], 1.0F);
}

TEST_F(Exchange, SyncIgnoresWeightsOfOtherSteps) {
  make("strategy = sync\n");
  assign({0});
  push(ready_at(0));
  const int64_t pull = newest_pull().number();
  for (const int64_t version : {int64_t{0}, int64_t{2}, INT64_MAX}) {
    for (const int server : {0, 1}) hear(server, weights(server, pull, version, 666.0F));
  }
  EXPECT_EQ(next().kind, Task::kWait);
}

TEST_F(Exchange, MessagesOfTheWrongKindOrServerAreRefused) {
  make("strategy = sync\n");
  Message message;
  message.header.mutable_state();
  EXPECT_FALSE(hear(0, message));
  message.header.mutable_exchange();
  EXPECT_FALSE(hear(1, message));
  EXPECT_FALSE(hear(-1, status(1, 1)));
  EXPECT_FALSE(hear(2, status(1, 1)));
}

}  // namespace
}  // namespace pushpull
