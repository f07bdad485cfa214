#include <gtest/gtest.h>

#include "ps/work/fixed_shares.h"
#include "tests/ps/work_fixture.h"

namespace pushpull {
namespace {

using AllReduceSharesTest = WorkTest;

TEST_F(AllReduceSharesTest, OwnersGetTheAddressesInShareOrder) {
  make("strategy = allreduce:ring\n", 2);
  const wire::State state = state_of(0);
  ASSERT_EQ(state.peer_endpoints_size(), 2);
  EXPECT_EQ(state.peer_endpoints(0), "tcp://10.0.0.1:7000");
  EXPECT_EQ(state.peer_endpoints(1), "tcp://10.0.0.1:7001");
  EXPECT_EQ(state.peer_incarnations(1), worker(1));
  EXPECT_EQ(state.assigned_size(), 1);
}

TEST_F(AllReduceSharesTest, AShareWithoutOwnerHasNoAddress) {
  make("strategy = allreduce:ring\n", 2);
  lose(1);
  const wire::State state = state_of(0);
  ASSERT_EQ(state.peer_endpoints_size(), 2);
  EXPECT_EQ(state.peer_endpoints(1), "");
  EXPECT_EQ(state.peer_incarnations(1), 0U);
}

}  // namespace
}  // namespace pushpull
