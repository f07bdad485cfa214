#include "ps/members/gathering.h"

#include <gtest/gtest.h>

#include <string>

#include "common/job/job.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

constexpr const char* kWaiting = "waiting for members: 1 of 2 workers";

// A Gathering with replacement-timeout = 30 s and --join-timeout = 600 s.
Gathering of_term(bool again, const std::string& keys = "", int heartbeat_timeout_s = 10) {
  return Gathering(job_of("replacement-timeout = 30\nheartbeat-timeout = " +
                          std::to_string(heartbeat_timeout_s) + "\n" + keys),
                   again, 600.0);
}

TEST(Gathering, LineNamesTheMissingMembersPeriodically) {
  Gathering gathering = of_term(false);
  EXPECT_EQ(gathering.line(0, kWaiting), std::nullopt) << "most members join at once";
  EXPECT_EQ(gathering.line(4999, kWaiting), std::nullopt);
  EXPECT_EQ(gathering.line(5000, kWaiting), kWaiting);
  EXPECT_EQ(gathering.line(5001, kWaiting), std::nullopt);
  EXPECT_EQ(gathering.line(10'000, ""), std::nullopt) << "no member is missing";
}

TEST(Gathering, FirstTermUsesTheJoinTimeoutAndLaterOnesTheReplacementTimeout) {
  Gathering first = of_term(false, "on-worker-loss = continue\n");
  first.line(0, kWaiting);
  EXPECT_FALSE(first.begins_without_others(600'001, true)) << "no worker has been lost";
  EXPECT_FALSE(first.overdue(600'000, kWaiting));
  EXPECT_FALSE(first.overdue(600'001, ""));
  ASSERT_TRUE(first.overdue(600'001, kWaiting));
  EXPECT_EQ(first.overdue(600'001, kWaiting)->code(), ErrorCode::kUnreachable);

  Gathering later = of_term(true);
  later.line(0, kWaiting);
  EXPECT_FALSE(later.begins_without_others(30'001, true)) << "on-worker-loss is not continue";
  EXPECT_FALSE(later.overdue(30'000, kWaiting));
  ASSERT_TRUE(later.overdue(30'001, kWaiting));
  EXPECT_EQ(later.overdue(30'001, kWaiting)->code(), ErrorCode::kPeerLost);
  EXPECT_STREQ(later.overdue(30'001, kWaiting)->what(),
               "[job] not all members came back within replacement-timeout = 30.0 s: waiting for "
               "members: 1 of 2 workers");
}

TEST(Gathering, TermThatMayLackWorkersWaitsForTheHeartbeatTimeout) {
  Gathering gathering = of_term(true, "on-worker-loss = continue\n");
  gathering.line(0, kWaiting);
  EXPECT_FALSE(gathering.begins_without_others(1000, true));
  EXPECT_FALSE(gathering.begins_without_others(9000, false)) << "a server is missing again";
  EXPECT_FALSE(gathering.begins_without_others(10'000, true));
  EXPECT_FALSE(gathering.begins_without_others(20'000, true));
  EXPECT_TRUE(gathering.begins_without_others(20'001, true));
}

// A silent worker may be declared lost only after the replacement timeout.
TEST(Gathering, TermThatMayLackWorkersBeginsAtTheReplacementTimeout) {
  Gathering gathering = of_term(true, "on-worker-loss = continue\n", 100);
  gathering.line(0, kWaiting);
  EXPECT_FALSE(gathering.begins_without_others(30'000, true));
  EXPECT_TRUE(gathering.begins_without_others(30'001, true));
  EXPECT_FALSE(gathering.begins_without_others(30'002, false));
  EXPECT_TRUE(gathering.overdue(30'002, kWaiting)) << "a server is missing";
}

TEST(Gathering, ExpectedMembersThatDoNotJoinAreMissingOnce) {
  Membership members(10);
  MemberInfo anna;
  anna.incarnation = kAnna;
  MemberInfo bert;
  bert.incarnation = kBert;
  Gathering gathering = of_term(true);
  gathering.expect({anna, bert});
  EXPECT_TRUE(gathering.take_missing(50'000, members).empty()) << "the wait has not begun";
  gathering.line(0, kWaiting);
  members.add(anna);
  EXPECT_TRUE(gathering.take_missing(10'000, members).empty()) << "it may still come";
  const std::vector<MemberInfo> missing = gathering.take_missing(10'001, members);
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_EQ(missing.front().incarnation, kBert);
  EXPECT_TRUE(gathering.take_missing(20'000, members).empty());
}

}  // namespace
}  // namespace pushpull
