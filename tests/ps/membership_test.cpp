#include "ps/members/membership.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

class Members : public testing::Test {
 protected:
  Members() {
    MemberInfo self;
    self.role = wire::ROLE_SERVER;
    self.rank = 0;
    self.incarnation = 1;
    members_.add(self);
    MemberInfo worker;
    worker.role = wire::ROLE_WORKER;
    worker.incarnation = 2;
    worker.host = "node3";
    worker.pid = 44;
    members_.heard(members_.add(worker), "peer", 1000);
  }
  Membership members_{5.0};
};

TEST_F(Members, AreNamedByRoleRankHostAndPid) {
  MemberInfo& worker = *members_.find(2);
  EXPECT_EQ(worker.name(), "worker (node3, pid 44)");
  worker.rank = 3;
  EXPECT_EQ(worker.name(), "worker 3 (node3, pid 44)");
}

TEST_F(Members, NewestFormerMembersAreKnownWithTheirReason) {
  members_.remove(7, "nobody", 1500);
  EXPECT_TRUE(members_.former().empty());
  members_.remove(2, "it left", 1500);
  ASSERT_EQ(members_.former().size(), 1U);
  EXPECT_EQ(members_.former()[0].member.host, "node3");
  EXPECT_EQ(members_.former()[0].reason, "it left");
  EXPECT_EQ(members_.former()[0].at_ms, 1500);
  EXPECT_EQ(members_.find(2), nullptr);
  members_.add({.role = wire::ROLE_WORKER, .incarnation = 2});
  EXPECT_TRUE(members_.former().empty()) << "the member is back";
  members_.remove(2, "it left", 1500);
  for (uint64_t who = 10; who < 10 + Membership::kMaxFormer; ++who) {
    members_.add({.role = wire::ROLE_WORKER, .incarnation = who});
    members_.remove(who, "lost", 2000);
  }
  EXPECT_EQ(members_.former().size(), Membership::kMaxFormer);
  EXPECT_EQ(members_.former().back().member.incarnation, 9 + Membership::kMaxFormer);
  EXPECT_EQ(members_.forgotten(), 1);
  members_.remove(1);
  EXPECT_EQ(members_.former().back().reason, "lost");
}

TEST_F(Members, AreFoundByIncarnationPeerAndRank) {
  EXPECT_EQ(members_.find(3), nullptr);
  EXPECT_EQ(members_.find_peer("peer"), members_.find(2));
  EXPECT_EQ(members_.find_peer("other"), nullptr);
  EXPECT_EQ(members_.find_rank(wire::ROLE_SERVER, 0), members_.find(1));
  EXPECT_EQ(members_.find_rank(wire::ROLE_WORKER, 0), nullptr);
  EXPECT_EQ(members_.count(wire::ROLE_WORKER), 1);
  members_.remove(2);
  EXPECT_EQ(members_.count(wire::ROLE_WORKER), 0);
}

TEST_F(Members, SilenceBeyondTheTimeoutIsALoss) {
  EXPECT_TRUE(members_.lost(6000).empty());
  const auto lost = members_.lost(6250);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].incarnation, 2U);
  EXPECT_EQ(lost[0].reason, "no heartbeat for 5.2 s");
  members_.heard(*members_.find(2), "peer", 6000);
  EXPECT_TRUE(members_.lost(6250).empty());
}

TEST_F(Members, UnheardMemberIsNotedLongBeforeItIsLost) {
  members_.heard(*members_.find(2), "peer", 6000);
  EXPECT_FALSE(members_.note_unheard(7600));
  EXPECT_TRUE(members_.note_unheard(7700));  // a third of five seconds
  EXPECT_TRUE(members_.find(2)->unheard);
  EXPECT_FALSE(members_.note_unheard(7800));  // already noted
  members_.heard(*members_.find(2), "peer", 7900);
  EXPECT_TRUE(members_.note_unheard(7910));
  EXPECT_FALSE(members_.find(2)->unheard);
  EXPECT_FALSE(members_.find(1)->unheard);  // the coordinator's own entry
}

TEST_F(Members, ClosedConnectionIsALossUnlessThePeerReturnsSoon) {
  members_.on_disconnect("peer", 2000);
  EXPECT_TRUE(members_.lost(3999).empty());
  members_.on_disconnect("peer", 3900);  // a repeat; the first report counts
  ASSERT_EQ(members_.lost(4001).size(), 1U);
  EXPECT_EQ(members_.lost(4001)[0].reason, "its connection closed 2.0 s ago");
  members_.heard(*members_.find(2), "new peer", 4001);
  EXPECT_TRUE(members_.lost(6100).empty());
  EXPECT_EQ(members_.find_peer("new peer"), members_.find(2));
}

TEST_F(Members, ServerOfTheCoordinatorsProcessIsNeverLost) {
  members_.remove(2);
  EXPECT_TRUE(members_.lost(1'000'000'000).empty());
}

TEST(Membership, ShortTimeoutShortensTheGraceOfAClosedConnection) {
  Membership members(0.5);
  MemberInfo worker;
  worker.incarnation = 2;
  members.heard(members.add(worker), "peer", 0);
  members.on_disconnect("peer", 0);
  members.heard(*members.find(2), "peer", 0);
  members.on_disconnect("peer", 0);
  EXPECT_EQ(members.lost(501).size(), 1U);
}

TEST(SecondsText, HasOneDecimal) {
  EXPECT_EQ(seconds_text(0), "0.0");
  EXPECT_EQ(seconds_text(1500), "1.5");
  EXPECT_EQ(seconds_text(60999), "60.9");
}

}  // namespace
}  // namespace pushpull
