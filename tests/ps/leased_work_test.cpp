#include "ps/work/leased_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/ps/work_fixture.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

class LeasedWorkTest : public WorkTest {
 protected:
  std::vector<wire::Lease> leases(int rank) { return work_->leases(*members_.find(worker(rank))); }
};

TEST_F(LeasedWorkTest, WorkersDrawAndSparesDoNot) {
  make("strategy = async\n", 2);
  ASSERT_EQ(leases(0).size(), 2U);
  EXPECT_EQ(leases(0)[0].number(), leases(0)[0].number()) << "until it is done";
  members_.find(worker(1))->rank = -1;
  EXPECT_TRUE(leases(1).empty());
  EXPECT_EQ(state_of(0).assigned_size(), 0);
}

TEST_F(LeasedWorkTest, ACommitMakesRoomForTheNextLease) {
  make("strategy = async\n", 2);
  const wire::Lease first = leases(0)[0];
  commit(0, first.step(), {first.lo(), first.hi()});
  EXPECT_NE(leases(0)[0].number(), first.number());
}

TEST_F(LeasedWorkTest, TheLeasesOfALostWorkerAreDrawnAgain) {
  make("strategy = async\n", 2);
  const wire::Lease lost = leases(1)[0];
  EXPECT_TRUE(lose(1));
  work_->fill();
  EXPECT_EQ(leases(0)[0].step(), lost.step());
  EXPECT_EQ(leases(0)[0].lo(), lost.lo());
}

TEST_F(LeasedWorkTest, AnEvaluationIsDrawnOnceItsBarrierIsOpen) {
  make("strategy = async\neval-every = 5\n", 1);
  const auto evaluates = [&] {
    const auto held = leases(0);
    return std::any_of(held.begin(), held.end(), [](const auto& l) { return l.evaluate(); });
  };
  for (int64_t step = 0; step < 5; ++step) {
    EXPECT_FALSE(evaluates());
    commit(0, step, {0, 4});
  }
  work_->on_barrier_open(5);
  EXPECT_TRUE(evaluates());
  for (int64_t chunk = 0; chunk < evaluations_->chunks(); ++chunk) {
    work_->on_chunk(worker(0), 5, chunk);
  }
  EXPECT_FALSE(evaluates());
}

TEST_F(LeasedWorkTest, WithoutAnyWorkerThereIsADeadline) {
  make("strategy = async\nreplacement-timeout = 20\n", 1);
  EXPECT_EQ(work_->overdue(0), "");
  lose(0);
  EXPECT_EQ(work_->overdue(1000), "");
  EXPECT_EQ(work_->overdue(21'000), "");
  EXPECT_THAT(work_->overdue(21'001), HasSubstr("no worker is left"));
  join(1);
  EXPECT_EQ(work_->overdue(30'000), "");
}

}  // namespace
}  // namespace pushpull
