#include "common/net/member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

Message job_text() {
  Job job;
  job.steps = 10;
  job.heartbeat_timeout_s = 3.0;  // a heartbeat every 600 ms
  Message message;
  message.header.mutable_job_text()->set_run(5);
  message.header.mutable_job_text()->set_ini(to_ini(job));
  message.header.mutable_job_text()->set_coordinator("server 0 (head, pid 1)");
  return message;
}

Message state(int64_t version) {
  Message message;
  message.header.mutable_state()->set_version(version);
  return message;
}

wire::Stats stats() {
  wire::Stats out;
  out.set_updates(3);
  return out;
}

Member joined() {
  Member member(options());
  member.on_tick(0, stats);
  EXPECT_EQ(member.on_message(0, job_text()), Member::News::kJoined);
  member.take_outgoing();
  return member;
}

// State versions in the heartbeats up to `until_ms`, with a turn every 10 ms.
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

TEST(Member, KnowsItsJobOnceTheHelloIsAnswered) {
  Member member(options());
  EXPECT_FALSE(member.joined());
  member.on_tick(0, stats);
  ASSERT_EQ(member.take_outgoing().size(), 1U);
  member.on_message(20, job_text());
  EXPECT_TRUE(member.joined());
  EXPECT_EQ(member.run(), 5U);
  EXPECT_EQ(member.job().steps, 10);
}

TEST(Member, HeartbeatsGoOnWhileNothingIsNew) {
  Member member = joined();
  EXPECT_EQ(heartbeats(member, 0, 2900), (std::vector<int64_t>{-1, -1, -1, -1, -1}));
}

TEST(Member, ANewStateIsConfirmedAtOnce) {
  Member member = joined();
  heartbeats(member, 0, 10);
  EXPECT_EQ(member.on_message(100, state(4)), Member::News::kState);
  EXPECT_EQ(heartbeats(member, 100, 110), std::vector<int64_t>{4});
}

TEST(Member, AnOldStateDoesNotOvertakeANewerOne) {
  Member member = joined();
  member.on_message(0, state(4));
  EXPECT_EQ(member.on_message(0, state(3)), Member::News::kNone);
  EXPECT_EQ(member.on_message(0, state(4)), Member::News::kNone);
  EXPECT_EQ(member.state().version(), 4);
}

TEST(Member, ASilentCoordinatorIsNamed) {
  Member member = joined();
  member.on_message(1000, state(1));
  heartbeats(member, 1000, 4000);
  try {
    member.on_tick(4001, stats);
    FAIL() << "it waits on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(e.what(), HasSubstr("server 0 (head, pid 1) at tcp://head:5555"));
    EXPECT_THAT(e.what(), HasSubstr("silent for 3 s"));
  }
}

TEST(Member, WhoIsGivenUpIsToldWithACode) {
  Member member = joined();
  Message refused;
  refused.header.mutable_refused()->set_code(static_cast<int>(ErrorCode::kPeerLost));
  EXPECT_THROW(member.on_message(0, refused), Error);
}

TEST(Member, AServerSaysASecondHelloWithItsAddress) {
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
