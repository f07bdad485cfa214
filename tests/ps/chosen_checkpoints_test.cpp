#include <gtest/gtest.h>

#include "ps/coordinator/barrier_snapshots.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

class ChosenTest : public testing::Test {
 protected:
  ChosenTest() {
    members_.add({.role = wire::ROLE_SERVER, .rank = 0, .incarnation = 1});
    members_.add({.role = wire::ROLE_SERVER, .rank = 1, .incarnation = 2, .peer = "second"});
    members_.add({.role = wire::ROLE_WORKER, .rank = 0, .incarnation = kAnna, .peer = "anna"});
    members_.add({.role = wire::ROLE_WORKER, .rank = -1, .incarnation = kBert, .peer = "spare"});
    out_.take_state_wanted();
  }
  void acknowledge(uint64_t who) { members_.find(who)->state_version = out_.state_version(); }

  Membership members_{10};
  Actions out_;
  ChosenCheckpoints chosen_{members_, true, out_};
};

TEST_F(ChosenTest, IsHeldUntilAllMembersWithARankKnow) {
  EXPECT_FALSE(chosen_.held());
  EXPECT_FALSE(chosen_.on_tick());
  chosen_.choose(12);
  EXPECT_TRUE(out_.take_state_wanted()) << "members hear it at once";
  EXPECT_EQ(chosen_.newest(), 12);
  EXPECT_FALSE(chosen_.on_tick());
  acknowledge(kAnna);
  EXPECT_FALSE(chosen_.on_tick()) << "server 1 does not know it yet";
  EXPECT_TRUE(chosen_.held());
  acknowledge(2);
  EXPECT_TRUE(chosen_.on_tick());
  EXPECT_FALSE(chosen_.held());
  EXPECT_TRUE(out_.take_state_wanted()) << "servers may release it";
  EXPECT_FALSE(chosen_.on_tick()) << "only once";
}

TEST_F(ChosenTest, WithServersThatHoldWorkersBackWorkersNeedNotKnow) {
  ChosenCheckpoints of_servers(members_, false, out_);
  of_servers.choose(12);
  EXPECT_FALSE(of_servers.on_tick());
  acknowledge(2);
  EXPECT_TRUE(of_servers.on_tick());
}

TEST_F(ChosenTest, AnOlderStateDoesNotCount) {
  acknowledge(kAnna);
  acknowledge(2);
  chosen_.choose(12);
  EXPECT_FALSE(chosen_.on_tick());
}

}  // namespace
}  // namespace pushpull
