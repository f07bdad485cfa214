#include "common/net/member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/common/thrown.h"

namespace pushpull::member_test {
namespace {

using testing::HasSubstr;

JoinOptions options() {
  JoinOptions out;
  out.role = wire::ROLE_SERVER;
  out.incarnation = 7;
  out.coordinator = "tcp://head:5555";
  return out;
}

// timeout_s: by default a heartbeat every 600 ms.
Message job_text(uint64_t term_id = 5, int64_t term = 1, const std::string& keys = "",
                 double timeout_s = 3.0) {
  Job job = parse_job_text("dataset = dummy\nsteps = 10\n" + keys, "test");
  job.heartbeat_timeout_s = timeout_s;
  Message message;
  message.header.set_term_id(term_id);
  message.header.mutable_job_text()->set_term_id(term_id);
  message.header.mutable_job_text()->set_term(term);
  message.header.mutable_job_text()->set_run_id(5);
  message.header.mutable_job_text()->set_ini(to_ini(job));
  message.header.mutable_job_text()->set_coordinator("server 0 (head, pid 1)");
  return message;
}

Message state(int64_t version, uint64_t term_id = 5) {
  Message message;
  message.header.set_term_id(term_id);
  message.header.mutable_state()->set_version(version);
  return message;
}

wire::Stats stats() {
  wire::Stats out;
  out.set_updates(3);
  return out;
}

Member joined(const std::string& keys = "", double timeout_s = 3.0) {
  Member member(options());
  member.on_tick(0, stats);
  EXPECT_EQ(member.on_message(0, job_text(5, 1, keys, timeout_s)), Member::News::kJoined);
  member.take_outgoing();
  return member;
}

// Calls on_tick every 10 ms and returns the state versions in the heartbeats up to `until_ms`.
std::vector<int64_t> heartbeats(Member& member, int64_t from_ms, int64_t until_ms) {
  std::vector<int64_t> versions;
  for (int64_t now = from_ms; now < until_ms; now += 10) {
    member.on_tick(now, stats);
    for (const Message& message : member.take_outgoing()) {
      EXPECT_TRUE(message.header.has_heartbeat());
      EXPECT_EQ(message.header.heartbeat().incarnation(), 7U);
      EXPECT_EQ(message.header.heartbeat().stats().updates(), 3);
      versions.push_back(message.header.heartbeat().state_version());
    }
  }
  return versions;
}

TEST(Member, KnowsItsJobAfterTheAnswerToItsHello) {
  Member member(options());
  EXPECT_FALSE(member.joined());
  member.on_tick(0, stats);
  ASSERT_EQ(member.take_outgoing().size(), 1U);
  member.on_message(20, job_text());
  EXPECT_TRUE(member.joined());
  EXPECT_EQ(member.term_id(), 5U);
  EXPECT_EQ(member.job().steps, 10);
}

TEST(Member, HeartbeatsContinueWithoutNews) {
  Member member = joined();
  EXPECT_EQ(heartbeats(member, 0, 2900), (std::vector<int64_t>{-1, -1, -1, -1, -1}));
}

TEST(Member, ANewStateIsAcknowledgedAtOnce) {
  Member member = joined();
  heartbeats(member, 0, 10);
  EXPECT_EQ(member.on_message(100, state(4)), Member::News::kState);
  EXPECT_EQ(heartbeats(member, 100, 110), std::vector<int64_t>{4});
}

TEST(Member, AnOldStateDoesNotReplaceANewerOne) {
  Member member = joined();
  member.on_message(0, state(4));
  EXPECT_EQ(member.on_message(0, state(3)), Member::News::kNone);
  EXPECT_EQ(member.on_message(0, state(4)), Member::News::kNone);
  EXPECT_EQ(member.state().version(), 4);
}

TEST(Member, ASilentCoordinatorIsNamed) {
  Member member = joined("on-server-loss = abort\n");
  member.on_message(1000, state(1));
  heartbeats(member, 1000, 4000);
  const std::string text = thrown(ErrorCode::kPeerLost, [&] { member.on_tick(4001, stats); });
  EXPECT_THAT(text, HasSubstr("server 0 (head, pid 1) at tcp://head:5555"));
  EXPECT_THAT(text, HasSubstr("silent for 3 s"));
}

TEST(Member, AMemberThatIsGivenUpGetsAnErrorCode) {
  Member member = joined();
  Message refused;
  refused.header.set_term_id(5);
  refused.header.mutable_refused()->set_code(static_cast<int>(ErrorCode::kPeerLost));
  EXPECT_THROW(member.on_message(0, refused), Error);
}

TEST(Member, OpensAnotherConnectionIfTheFirstIsSilent) {
  Member member = joined();
  member.on_message(500, state(1));
  EXPECT_FALSE(member.needs_connection(1500));
  EXPECT_TRUE(member.needs_connection(1501));  // a third of three seconds
  EXPECT_THAT(member.take_notices(),
              testing::ElementsAre("[job] no messages from server 0 (head, pid 1) at "
                                   "tcp://head:5555; connecting again"));
  EXPECT_FALSE(member.needs_connection(2500));
  EXPECT_TRUE(member.needs_connection(2501)) << "the second connection is silent too";
  EXPECT_TRUE(member.take_notices().empty()) << "reported twice";
  member.on_message(2600, state(2));
  EXPECT_FALSE(member.needs_connection(3550));
}

// The coordinator gives up a member that is not heard within 2 s after its connection was closed.
TEST(Member, OpensAnotherConnectionSoonIfTheOneAfterAClosedOneIsSilent) {
  Member member = joined("", 10.0);
  member.on_message(500, state(1));
  member.on_tick(510, stats);
  member.take_outgoing();
  member.on_closed(600);
  member.on_tick(610, stats);
  EXPECT_EQ(member.take_outgoing().size(), 1U) << "a heartbeat on the next connection";
  EXPECT_FALSE(member.needs_connection(1600));
  member.on_closed(1200);  // once more: the first time counts
  EXPECT_TRUE(member.needs_connection(1601));
  EXPECT_EQ(member.take_notices().size(), 1U);
  member.on_message(1700, state(2));
  EXPECT_FALSE(member.needs_connection(5000));
  EXPECT_TRUE(member.needs_connection(5034)) << "no connection was closed since";
}

// The coordinator may have taken the Hello, whose answer was lost.
TEST(Member, OpensAnotherConnectionSoonAfterAClosedOneAlsoBeforeItHasJoined) {
  Member member(options());
  member.on_tick(10, stats);
  member.on_closed(20);
  EXPECT_FALSE(member.needs_connection(1020));
  EXPECT_TRUE(member.needs_connection(1021));
}

TEST(Member, OpensNoConnectionIfTheOneAfterAClosedOneWorks) {
  Member member = joined("", 10.0);
  member.on_message(500, state(1));
  member.on_closed(600);
  member.on_message(700, state(2));
  EXPECT_FALSE(member.needs_connection(3900));
}

TEST(Member, SendsAHeartbeatAtOnceOnAnotherConnection) {
  Member member = joined();
  member.on_message(500, state(1));
  member.on_tick(1490, stats);
  EXPECT_EQ(member.take_outgoing().size(), 1U);
  member.on_tick(1500, stats);
  EXPECT_TRUE(member.take_outgoing().empty());
  EXPECT_TRUE(member.needs_connection(1501));
  member.on_tick(1510, stats);
  EXPECT_EQ(member.take_outgoing().size(), 1U);
  EXPECT_FALSE(member.needs_connection(1510));
  member.on_tick(1520, stats);
  EXPECT_TRUE(member.take_outgoing().empty());
}

TEST(Member, OpensAnotherConnectionIfItsHeartbeatsDoNotArrive) {
  Member member = joined();
  Message message = state(1);
  message.header.mutable_state()->set_unheard(true);
  member.on_message(10, message);
  EXPECT_TRUE(member.needs_connection(20));
  EXPECT_EQ(member.take_notices().size(), 1U);
  EXPECT_FALSE(member.needs_connection(1000));
  EXPECT_TRUE(member.needs_connection(1020));
  member.on_message(1100, state(2));
  EXPECT_FALSE(member.needs_connection(1200));
}

TEST(Member, OpensAnotherConnectionIfItsHelloIsNotAnswered) {
  Member member(options());
  member.on_tick(1000, stats);
  EXPECT_FALSE(member.needs_connection(4300));
  EXPECT_TRUE(member.needs_connection(4400));  // a third of ten seconds: the job is not known
  EXPECT_TRUE(member.take_notices().empty());
}

TEST(Member, ASilentCoordinatorMayReturnWithinReplacementTimeout) {
  Member member = joined("replacement-timeout = 5\n");
  member.on_message(1000, state(1));
  heartbeats(member, 1000, 4000);
  EXPECT_FALSE(member.misses_coordinator(4000));
  member.on_tick(4001, stats);
  EXPECT_TRUE(member.misses_coordinator(4001));
  EXPECT_THAT(member.take_notices(),
              testing::ElementsAre(HasSubstr("silent for 3 s; waiting up to 5 s")));
  EXPECT_FALSE(heartbeats(member, 4010, 9000).empty())
      << "a new coordinator learns of members by heartbeats";
  EXPECT_TRUE(member.take_notices().empty()) << "reported twice";
  EXPECT_THAT(thrown(ErrorCode::kPeerLost, [&] { member.on_tick(9001, stats); }),
              HasSubstr("silent for 8 s"));
}

TEST(Member, ANewTermReplacesTheOldOneAndNeedsANewHello) {
  Member member = joined();
  member.on_message(0, state(7));
  EXPECT_EQ(member.on_message(10, job_text(6, 2)), Member::News::kTerm);
  EXPECT_FALSE(member.joined());
  EXPECT_EQ(member.term_id(), 6U);
  EXPECT_EQ(member.earlier_term_id(), 5U);
  EXPECT_EQ(member.state().version(), -1);
  member.on_tick(20, stats);
  const std::vector<Message> sent = member.take_outgoing();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(sent[0].header.has_hello());
  EXPECT_EQ(sent[0].header.term_id(), 6U);
  EXPECT_EQ(member.on_message(30, state(8, 5)), Member::News::kNone) << "from the old term";
  EXPECT_EQ(member.on_message(30, job_text(6, 2)), Member::News::kJoined);
  EXPECT_EQ(member.on_message(30, state(8, 5)), Member::News::kNone);
  EXPECT_EQ(member.on_message(30, state(1, 6)), Member::News::kState);
  EXPECT_EQ(member.on_message(40, job_text(5, 1)), Member::News::kNone) << "late";
  EXPECT_EQ(member.term_id(), 6U);
}

TEST(Member, AWorkerHasJoinedANewTermAfterTheFirstState) {
  JoinOptions worker = options();
  worker.role = wire::ROLE_WORKER;
  Member member(worker);
  member.on_tick(0, stats);
  EXPECT_EQ(member.on_message(0, job_text()), Member::News::kJoined);
  EXPECT_EQ(member.on_message(10, job_text(6, 2)), Member::News::kTerm);
  EXPECT_EQ(member.on_message(11, job_text(6, 2)), Member::News::kNone)
      << "accepted as an answer to a Hello that it has not sent";
  EXPECT_FALSE(member.joined());
  EXPECT_EQ(member.on_message(12, state(1, 6)), Member::News::kJoined);
  EXPECT_EQ(member.state().version(), 1);
}

TEST(Member, AWorkerKeepsItsRankInLaterTerms) {
  JoinOptions worker = options();
  worker.role = wire::ROLE_WORKER;
  Member member(worker);
  member.on_tick(0, stats);
  EXPECT_EQ(member.take_outgoing()[0].header.hello().wanted_rank(), 0) << "any";
  Message first = job_text();
  first.header.mutable_job_text()->set_rank(3);
  member.on_message(0, first);
  EXPECT_EQ(member.rank(), 3);
  member.take_outgoing();
  EXPECT_EQ(member.on_message(10, job_text(6, 2)), Member::News::kTerm);
  member.on_tick(20, stats);
  EXPECT_EQ(member.take_outgoing()[0].header.hello().wanted_rank(), 3 + 1);
  EXPECT_EQ(member.rank(), 3);
}

TEST(Member, MessagesOfAnotherTermDoNotKeepTheCoordinatorAlive) {
  Member member = joined("on-server-loss = abort\n");
  for (int64_t now = 0; now <= 3000; now += 100) member.on_message(now, state(1, 4));
  EXPECT_THROW(member.on_tick(3001, stats), Error);
}

TEST(Member, AnotherRunAtTheAddressEndsTheMember) {
  Member member = joined();
  Message text = job_text(6, 1);
  text.header.mutable_job_text()->set_run_id(6);
  EXPECT_THAT(thrown(ErrorCode::kPeerLost, [&] { member.on_message(10, text); }),
              HasSubstr("has begun another run"));
}

TEST(Member, AServerSendsASecondHelloWithItsAddress) {
  Member member = joined();
  member.join_as_server("tcp://node:1");
  EXPECT_FALSE(member.joined());
  member.on_tick(10, stats);
  EXPECT_EQ(member.take_outgoing().at(0).header.hello().data_endpoint(), "tcp://node:1");
  EXPECT_EQ(member.on_message(20, job_text()), Member::News::kNone);
  EXPECT_EQ(member.on_message(20, state(1)), Member::News::kJoined);
  EXPECT_EQ(member.state().version(), 1);
}

}  // namespace
}  // namespace pushpull::member_test
