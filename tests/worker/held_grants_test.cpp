#include "worker/schedule/held_grants.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

wire::State state_of(std::initializer_list<Range> shares) {
  wire::State state;
  for (const Range& range : shares) {
    wire::Share* share = state.add_assigned();
    share->set_lo(range.lo);
    share->set_hi(range.hi);
    share->mutable_grant()->set_mac("share " + std::to_string(range.lo));
  }
  return state;
}

google::protobuf::RepeatedPtrField<wire::Lease> leases(int64_t from, int64_t to) {
  google::protobuf::RepeatedPtrField<wire::Lease> out;
  for (int64_t number = from; number <= to; ++number) {
    wire::Lease* lease = out.Add();
    lease->set_number(number);
    lease->set_step(10 * number);
    lease->set_lo(0);
    lease->set_hi(4);
    lease->mutable_grant()->set_mac("lease " + std::to_string(number));
  }
  return out;
}

TEST(HeldGrants, AShareHasItsOwnInEveryStep) {
  HeldGrants held;
  held.on_state(state_of({{0, 2}, {4, 6}}));
  EXPECT_EQ(held.of(0, {0, 2}).mac(), "share 0");
  EXPECT_EQ(held.of(7, {4, 6}).mac(), "share 4");
  EXPECT_EQ(held.of(7, {4, 5}).mac(), "") << "no share";
  EXPECT_EQ(held.of(7, {2, 4}).mac(), "");
  held.on_state(state_of({{4, 6}}));
  EXPECT_EQ(held.of(8, {0, 2}).mac(), "") << "it is another's now";
  EXPECT_EQ(held.of(8, {4, 6}).mac(), "share 4");
}

TEST(HeldGrants, ALeaseHasItsOwnHoweverOftenItComes) {
  HeldGrants held;
  held.on_leases(leases(1, 2));
  held.on_leases(leases(1, 2));
  EXPECT_EQ(held.of(10, {0, 4}).mac(), "lease 1");
  EXPECT_EQ(held.of(20, {0, 4}).mac(), "lease 2");
  EXPECT_EQ(held.of(30, {0, 4}).mac(), "");
  EXPECT_EQ(held.of(10, {0, 3}).mac(), "");
  held.on_leases(leases(3, 1000));
  EXPECT_EQ(held.of(10, {0, 4}).mac(), "") << "old ones are forgotten";
  EXPECT_EQ(held.of(10000, {0, 4}).mac(), "lease 1000");
}

}  // namespace
}  // namespace pushpull
