#include "ps/members/server_places.h"

#include <gtest/gtest.h>

#include "common/job/job.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

class Places : public testing::Test {
 protected:
  Places() {
    for (int rank = 0; rank < 3; ++rank) add(rank, 100 + static_cast<uint64_t>(rank));
    places_ = std::make_unique<ServerPlaces>(job_, 3, members_);
  }
  void add(int rank, uint64_t incarnation) {
    MemberInfo server;
    server.role = wire::ROLE_SERVER;
    server.rank = rank;
    server.incarnation = incarnation;
    server.data_endpoint = "tcp://host:" + std::to_string(incarnation);
    members_.add(server);
  }
  wire::State state() const {
    wire::State out;
    places_->add_to_state(&out);
    return out;
  }

  Job job_ = job_of("recovery = peers\nreplacement-timeout = 5\n");
  Membership members_{10.0};
  std::unique_ptr<ServerPlaces> places_;
};

TEST_F(Places, ReplacementTakesALostServersPlaceFromTheNewestCopy) {
  EXPECT_FALSE(places_->lost_server(0, 1, 20)) << "there is no copy yet";
  places_->copied(16, 16);
  places_->copied(32, 32);
  ASSERT_TRUE(places_->lost_server(1000, 1, 40));
  members_.remove(101);
  EXPECT_EQ(state().data_endpoints(1), "tcp://host:101") << "the number of servers stays";
  EXPECT_EQ(state().places().absent(0), 1);
  EXPECT_EQ(state().places().copied_step(), 32);
  EXPECT_EQ(places_->take_joined(members_), std::nullopt);
  add(1, 201);
  const MemberInfo& server = *members_.find(201);
  EXPECT_FALSE(places_->is_settled(server))
      << "a replacement must not start with the initial weights";
  EXPECT_EQ(places_->take_joined(members_), 1);
  EXPECT_EQ(places_->take_joined(members_), std::nullopt) << "only once";
  EXPECT_TRUE(places_->is_settled(server));
  wire::State start;
  places_->add_start_to(&start, server);
  EXPECT_EQ(start.start_step(), 32);
  EXPECT_EQ(start.updates(), 32);
  EXPECT_TRUE(start.load());
  EXPECT_TRUE(start.places().replays());
  EXPECT_EQ(state().places().absent_size(), 1)
      << "workers wait until the replacement has its weights";
  EXPECT_EQ(places_->recovered(), 0);
  places_->loaded(201);
  EXPECT_EQ(places_->recovered(), 1);
  EXPECT_EQ(state().data_endpoints(1), "tcp://host:201");
  EXPECT_EQ(state().places().lives(1), 1);
  EXPECT_EQ(state().places().absent_size(), 0);
  wire::State other;
  places_->add_start_to(&other, *members_.find(102));
  EXPECT_FALSE(other.load()) << "a server from the start loads nothing";
}

TEST_F(Places, ServerZeroHoldsTheCopiesAndIsNotReplaced) {
  places_->copied(16, 16);
  EXPECT_FALSE(places_->lost_server(0, 0, 20));
}

TEST_F(Places, WorkersHearOfALostServerWithoutReplacementToo) {
  job_ = job_of("recovery = checkpoint\n");
  EXPECT_FALSE(state().has_places());
  EXPECT_FALSE(places_->lost_server(0, 1, 20));
  ASSERT_EQ(state().places().absent_size(), 1);
  EXPECT_EQ(state().places().absent(0), 1);
  EXPECT_EQ(state().places().lives_size(), 0) << "no process takes its place within the term";
}

TEST_F(Places, PushesOfALostWorkerMustBeInTheCopy) {
  places_->copied(16, 16);
  EXPECT_TRUE(places_->lost_worker(20)) << "all servers have its pushes";
  EXPECT_FALSE(places_->lost_server(0, 1, 25));
  places_->copied(32, 32);
  EXPECT_TRUE(places_->lost_server(0, 1, 40));
  EXPECT_FALSE(places_->lost_worker(40)) << "server 1 lacks its pushes";
}

TEST_F(Places, ServerHasCaughtUpWithItsFirstCopy) {
  places_->copied(16, 16);
  ASSERT_TRUE(places_->lost_server(0, 2, 20));
  members_.remove(102);
  add(2, 202);
  places_->take_joined(members_);
  places_->loaded(202);
  EXPECT_FALSE(places_->lost_worker(21));
  places_->copied(32, 32);
  EXPECT_TRUE(places_->lost_worker(33));
}

TEST_F(Places, ReplacementThatIsLostIsReplacedAgain) {
  places_->copied(16, 16);
  ASSERT_TRUE(places_->lost_server(1000, 1, 20));
  members_.remove(101);
  add(1, 201);
  places_->take_joined(members_);
  members_.remove(201);
  ASSERT_TRUE(places_->lost_server(2000, 1, 20));
  places_->loaded(201);
  EXPECT_EQ(state().places().absent_size(), 1) << "the replacement is lost";
  add(1, 301);
  EXPECT_EQ(places_->take_joined(members_), 1);
}

TEST_F(Places, WaitForAReplacementIsBounded) {
  places_->copied(16, 16);
  ASSERT_TRUE(places_->lost_server(1000, 1, 20));
  EXPECT_EQ(places_->overdue(6000), "");
  EXPECT_EQ(places_->overdue(6001),
            "[job] no server has taken the place of server 1 within replacement-timeout = 5.0 s");
}

}  // namespace
}  // namespace pushpull
