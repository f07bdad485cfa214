#include "ps/members/actions.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(Actions, TakingReturnsEachItemOnce) {
  Actions out;
  out.notice("one");
  out.refuse("peer", ErrorCode::kUsage, "[join] too many");
  EXPECT_EQ(out.take_notices(), std::vector<std::string>{"one"});
  EXPECT_TRUE(out.take_notices().empty());
  const auto messages = out.take_messages();
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].to, "peer");
  EXPECT_EQ(messages[0].message.header.refused().code(), static_cast<int>(ErrorCode::kUsage));
  EXPECT_EQ(messages[0].message.header.refused().text(), "[join] too many");
  EXPECT_TRUE(out.take_messages().empty());
}

TEST(Actions, MessagesForServersDoNotReachWorkers) {
  Membership members(10);
  members.add({.role = wire::ROLE_SERVER, .rank = 0, .incarnation = 1});
  members.add({.role = wire::ROLE_SERVER, .rank = 1, .incarnation = 2, .peer = "second"});
  members.add({.role = wire::ROLE_WORKER, .rank = 0, .incarnation = 3, .peer = "worker"});
  Actions out;
  out.send_to_servers(members, Message());
  const auto messages = out.take_messages();
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0].to, "");
  EXPECT_EQ(messages[1].to, "second");
}

TEST(Actions, OnlyChangesAdvanceTheStateVersion) {
  Actions out;
  EXPECT_TRUE(out.take_state_wanted()) << "no member has the first one";
  const int64_t version = out.state_version();
  out.repeat_state(7);
  out.repeat_state(7);
  EXPECT_EQ(out.state_version(), version);
  EXPECT_FALSE(out.take_state_wanted()) << "only one member needs it";
  EXPECT_EQ(out.take_lacking(), std::set<uint64_t>{7});
  EXPECT_TRUE(out.take_lacking().empty());
  out.state_changed();
  EXPECT_EQ(out.state_version(), version + 1);
  EXPECT_TRUE(out.take_state_wanted());
}

TEST(Actions, CountedUsesThePluralExceptForOne) {
  EXPECT_EQ(counted(1, "server"), "1 server");
  EXPECT_EQ(counted(0, "server"), "0 servers");
  EXPECT_EQ(counted(2, "push", "pushes"), "2 pushes");
}

}  // namespace
}  // namespace pushpull
