#include "worker/member/worker_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::HasSubstr;

class WorkerMemberTest : public testing::Test {
 protected:
  WorkerMemberTest() : member_(options(), [] { return wire::Stats(); }) {}

  static JoinOptions options() {
    JoinOptions out;
    out.incarnation = 7;
    out.coordinator = "tcp://head:5555";
    return out;
  }
  void join() {
    tick();
    Job job;
    job.steps = 10;
    Message message;
    message.header.mutable_job_text()->set_term_id(5);
    message.header.mutable_job_text()->set_ini(to_ini(job));
    member_.on_message(now_, message);
    EXPECT_TRUE(member_.joined());
    tick();
    sent();
  }
  void send_state(int64_t version, wire::Phase phase, bool declared) {
    Message message;
    message.header.set_term_id(5);
    message.header.mutable_state()->set_version(version);
    message.header.mutable_state()->set_phase(phase);
    message.header.mutable_state()->set_declared(declared);
    message.header.mutable_state()->set_code(5);
    message.header.mutable_state()->set_text("[job] lost somebody");
    member_.on_message(now_, message);
  }
  void tick(int64_t ms = 10) {
    now_ += ms;
    member_.on_tick(now_);
  }
  // Returns the messages sent, without heartbeats.
  std::vector<wire::Header> sent() {
    std::vector<wire::Header> out;
    for (const Message& message : member_.take_outgoing()) {
      if (!message.header.has_heartbeat()) out.push_back(message.header);
    }
    return out;
  }

  int64_t now_ = 0;
  WorkerMember member_;
};

TEST_F(WorkerMemberTest, JoinsAsAWorker) {
  tick();
  const auto words = sent();
  ASSERT_EQ(words.size(), 1U);
  EXPECT_EQ(words[0].hello().role(), wire::ROLE_WORKER);
}

TEST_F(WorkerMemberTest, DeclaresEverySecondUntilAStateAcknowledgesIt) {
  join();
  wire::Declare declare;
  declare.set_data_digest("digest");
  member_.declare(5, declare);
  tick();
  auto words = sent();
  ASSERT_EQ(words.size(), 1U);
  EXPECT_EQ(words[0].declare().incarnation(), 7U);
  EXPECT_EQ(words[0].declare().data_digest(), "digest");
  tick(990);
  EXPECT_TRUE(sent().empty());
  tick();
  EXPECT_EQ(sent().size(), 1U);
  send_state(1, wire::PHASE_GATHERING, true);
  tick(2000);
  EXPECT_TRUE(sent().empty());
}

TEST_F(WorkerMemberTest, GivesThePartsOfItsInitialWeightsThatTheCoordinatorAsksFor) {
  join();
  const auto ask = [&](int64_t offset, int64_t count) {
    Message message;
    message.header.set_term_id(5);
    message.header.mutable_ask_weights()->set_offset(offset);
    message.header.mutable_ask_weights()->set_count(count);
    member_.on_message(now_, message);
    return member_.take_outgoing();
  };
  EXPECT_TRUE(ask(0, 2).empty()) << "it has none";
  std::vector<float> weights{1.0F, 2.0F, 3.0F, 4.0F, 5.0F};
  member_.offer_weights(weights);
  const std::vector<Message> answers = ask(3, 2);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].header.term_id(), 5U);
  EXPECT_EQ(answers[0].header.own_weights().incarnation(), 7U);
  EXPECT_EQ(answers[0].header.own_weights().offset(), 3);
  weights.assign(5, 0.0F);
  ASSERT_EQ(answers[0].payloads.size(), 1U);
  ASSERT_EQ(answers[0].payloads[0].float_count(), 2U);
  EXPECT_EQ(answers[0].payloads[0].floats()[1], 5.0F) << "a copy";
  member_.offer_weights({});
  EXPECT_TRUE(ask(0, 2).empty()) << "the program's model is gone";
  EXPECT_FALSE(member_.end());
}

// Asks a worker with five weights. offset, count: of the question.
class ImpossibleQuestion : public WorkerMemberTest,
                           public testing::WithParamInterface<std::pair<int64_t, int64_t>> {};

TEST_P(ImpossibleQuestion, EndsTheWorker) {
  join();
  const std::vector<float> weights(5);
  member_.offer_weights(weights);
  Message message;
  message.header.set_term_id(5);
  message.header.mutable_ask_weights()->set_offset(GetParam().first);
  message.header.mutable_ask_weights()->set_count(GetParam().second);
  member_.on_message(now_, message);
  ASSERT_TRUE(member_.end());
  EXPECT_EQ(member_.end()->code, ErrorCode::kProtocol);
  EXPECT_THAT(member_.end()->text, HasSubstr("this worker has 5"));
}

INSTANTIATE_TEST_SUITE_P(Ranges, ImpossibleQuestion,
                         testing::Values(std::pair(4, 2), std::pair(-1, 1), std::pair(0, 0),
                                         std::pair(1, INT64_MAX), std::pair(INT64_MAX, 1)));

TEST_F(WorkerMemberTest, DeclaresAgainAfterItRejoins) {
  join();
  member_.declare(5, {});
  send_state(1, wire::PHASE_GATHERING, true);
  send_state(2, wire::PHASE_GATHERING, false);
  tick(1000);
  EXPECT_EQ(sent().size(), 1U);
}

TEST_F(WorkerMemberTest, ResultsAreRepeatedUnderTheirNumberUntilTheyAreAcknowledged) {
  join();
  member_.declare(5, {});
  send_state(1, wire::PHASE_TRAINING, true);
  wire::EvalResult result;
  result.set_step(4);
  member_.report(5, result);
  tick();
  result.set_step(8);
  member_.report(5, result);
  sent();
  tick(1000);
  auto words = sent();
  ASSERT_EQ(words.size(), 2U);
  EXPECT_EQ(words[0].eval_result().number(), 1);
  EXPECT_EQ(words[0].eval_result().step(), 4);
  EXPECT_EQ(words[1].eval_result().number(), 2);
  Message taken;
  taken.header.mutable_eval_taken()->set_number(1);
  taken.header.set_term_id(5);
  member_.on_message(now_, taken);
  tick(1000);
  words = sent();
  ASSERT_EQ(words.size(), 1U);
  EXPECT_EQ(words[0].eval_result().number(), 2);
  EXPECT_EQ(member_.open_results(), 1U);
}

// A trainer may end its evaluation after the next term has begun.
TEST_F(WorkerMemberTest, ResultOfAnEarlierTermIsDropped) {
  join();
  wire::EvalResult result;
  result.set_step(4);
  member_.report(4, result);
  sent();
  tick(1000);
  EXPECT_EQ(member_.open_results(), 0U);
  EXPECT_TRUE(sent().empty());
}

// A term may end while its declaration is made.
TEST_F(WorkerMemberTest, DeclarationOfAnEarlierTermIsDropped) {
  join();
  member_.declare(4, {});
  tick(1000);
  EXPECT_TRUE(sent().empty());
  member_.declare(5, {});
  tick(1000);
  EXPECT_EQ(sent().size(), 1U);
}

TEST_F(WorkerMemberTest, FinishedJobEndsWell) {
  join();
  send_state(1, wire::PHASE_FINISHED, true);
  ASSERT_TRUE(member_.end());
  EXPECT_EQ(member_.end()->exit_code(), 0);
}

TEST_F(WorkerMemberTest, FailedJobGivesItsCodeAndText) {
  join();
  send_state(1, wire::PHASE_FAILED, true);
  ASSERT_TRUE(member_.end());
  EXPECT_EQ(member_.end()->exit_code(), 5);
  EXPECT_EQ(member_.end()->text, "[job] lost somebody");
}

TEST_F(WorkerMemberTest, NoMessageFollowsLeave) {
  join();
  wire::Applied push;
  push.set_step(3);
  member_.note_failed(push);
  member_.leave(7, "[loss] is NaN");
  const auto words = sent();
  ASSERT_EQ(words.size(), 1U);
  EXPECT_EQ(words[0].leave().code(), 7);
  EXPECT_EQ(words[0].leave().text(), "[loss] is NaN");
  EXPECT_EQ(words[0].leave().failed().step(), 3);
  tick(5000);
  EXPECT_TRUE(member_.take_outgoing().empty());
}

TEST_F(WorkerMemberTest, WorkerThatHasNotJoinedSendsNoLeave) {
  tick();
  sent();
  member_.leave(1, "ended");
  EXPECT_TRUE(sent().empty());
}

TEST_F(WorkerMemberTest, BeforeTheFirstAnswerASignalEndsItAndASecondCtrlCAtOnce) {
  tick();
  EXPECT_FALSE(member_.on_signal(now_, 15));
  EXPECT_EQ(member_.end()->exit_code(), 143);
  EXPECT_FALSE(member_.on_signal(now_ + 1000, 15)) << "schedulers repeat the signal";
  EXPECT_FALSE(member_.on_signal(now_ + 1000, 2));
  EXPECT_FALSE(member_.on_signal(now_ + 1299, 2)) << "a copy of the first signal";
  EXPECT_TRUE(member_.on_signal(now_ + 1300, 2));
}

TEST_F(WorkerMemberTest, DuringTrainingItKeepsItsPlaceUntilItIsReleased) {
  join();
  send_state(1, wire::PHASE_TRAINING, true);
  EXPECT_FALSE(member_.on_signal(now_, 15));
  tick(1);
  EXPECT_EQ(member_.take_outgoing().at(0).header.heartbeat().told_to_end(), 15)
      << "the heartbeat is sent at once";
  tick(5000);
  EXPECT_FALSE(member_.end());
  Message message;
  message.header.set_term_id(5);
  message.header.mutable_state()->set_version(2);
  message.header.mutable_state()->set_phase(wire::PHASE_TRAINING);
  message.header.mutable_state()->set_let_go(true);
  member_.on_message(now_, message);
  tick(1);
  ASSERT_TRUE(member_.end());
  EXPECT_EQ(member_.end()->exit_code(), 143);
}

// The grace of the coordinator may be longer: a worker that leaves would spoil the stop.
TEST_F(WorkerMemberTest, WorkerThatIsNotReleasedStaysWhileTheCoordinatorSpeaks) {
  join();
  send_state(1, wire::PHASE_TRAINING, true);
  member_.on_signal(now_, 15);
  const int64_t end_request_ms = now_;
  for (int64_t version = 2; now_ < end_request_ms + 2 * EndRequest::kGraceMs; ++version) {
    tick();
    if (version % 100 == 0) send_state(version, wire::PHASE_TRAINING, true);
    ASSERT_FALSE(member_.end());
  }
  tick(EndRequest::kSilentMs);
  ASSERT_TRUE(member_.end());
  EXPECT_EQ(member_.end()->exit_code(), 143);
}

TEST_F(WorkerMemberTest, StoppedRunEndsItWithTheRunsCodeAfterASignal) {
  join();
  send_state(1, wire::PHASE_TRAINING, true);
  member_.on_signal(now_, 15);
  Message message;
  message.header.set_term_id(5);
  message.header.mutable_state()->set_version(2);
  message.header.mutable_state()->set_phase(wire::PHASE_FAILED);
  message.header.mutable_state()->set_code(75);
  member_.on_message(now_, message);
  EXPECT_EQ(member_.end()->exit_code(), 75);
}

TEST_F(WorkerMemberTest, ComputationThatDoesNotStopIsNoticed) {
  join();
  send_state(1, wire::PHASE_FINISHED, true);
  EXPECT_FALSE(member_.stop_is_late(now_ + 5000));
  EXPECT_TRUE(member_.stop_is_late(now_ + 5001));
}

TEST_F(WorkerMemberTest, SilentCoordinatorEndsIt) {
  join();
  tick(10'001);
  EXPECT_FALSE(member_.end()) << "the coordinator may be restarted";
  tick(60'000);
  ASSERT_TRUE(member_.end());
  EXPECT_EQ(member_.end()->code, ErrorCode::kPeerLost);
  EXPECT_THAT(member_.end()->text, HasSubstr("silent"));
}

}  // namespace
}  // namespace pushpull
