#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "ps/members/fixed_shares.h"
#include "tests/ps/work_fixture.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// Three workers with shares of 1, 1 and 2 micro-batches.
class BackupSharesTest : public WorkTest {
 protected:
  void make_three(const std::string& keys = "") {
    make("strategy = backup:1\neval-every = 2\n" + keys, 3);
  }
  Checked arrived(int64_t step, std::initializer_list<int> shares) {
    wire::Arrived arrived;
    arrived.set_incarnation(1);
    arrived.set_step(step);
    for (const int lo : shares) arrived.add_lo(lo);
    return work_->on_arrived(*members_.find(1), arrived);
  }
  void evaluate(int64_t step) {
    for (int64_t i = 0; i < evaluations_->chunks(); ++i) {
      wire::ChunkResult chunk;
      chunk.set_chunk(i);
      work_->on_chunk(worker(0), step, i, evaluations_->add(step, chunk).has_value());
    }
  }
};

TEST_F(BackupSharesTest, AStepTakesAllPushesButOne) {
  make_three();
  EXPECT_EQ(reason_of(arrived(0, {0})), "");
  EXPECT_TRUE(out_.take_messages().empty());
  EXPECT_EQ(reason_of(arrived(0, {0, 2})), "");
  const auto messages = out_.take_messages();
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].message.header.chosen().lo_size(), 2);
  EXPECT_EQ(reason_of(arrived(10, {0, 1})), "wrong-step");
  EXPECT_EQ(reason_of(arrived(-1, {0, 1})), "wrong-step");
}

TEST_F(BackupSharesTest, ChunksOfALostShareAreStillEvaluated) {
  make_three("on-worker-loss = continue\nreplacement-timeout = 20\n");
  EXPECT_TRUE(lose(2));
  work_->fill();
  ASSERT_EQ(state_of(0).assigned_size(), 2);
  EXPECT_EQ(state_of(0).assigned(1).index(), 2);
  EXPECT_EQ(state_of(0).assigned(1).hi(), 0) << "no worker computes it";
  EXPECT_EQ(work_->overdue(1'000'000), "") << "the job continues without the worker";
}

TEST_F(BackupSharesTest, SecondLossReassignsTheShares) {
  make_three("on-worker-loss = continue\n");
  lose(2);
  work_->fill();
  lose(0);
  work_->fill();
  ASSERT_EQ(state_of(1).assigned_size(), 3);
  EXPECT_EQ(state_of(1).assigned(0).hi(), 1);
}

TEST_F(BackupSharesTest, NewOwnerStartsAfterTheNewestEvaluation) {
  make_three("on-worker-loss = continue\n");
  evaluate(4);
  lose(2);
  work_->fill();
  join(3);
  work_->fill();
  ASSERT_EQ(state_of(3).assigned_size(), 1);
  EXPECT_EQ(state_of(3).assigned(0).from_step(), 4);
}

TEST_F(BackupSharesTest, StateTellsServersTheEvaluatedBarrier) {
  make_three();
  wire::State state;
  work_->add_to_server_state(&state);
  EXPECT_EQ(state.evaluated_barrier(), 0);
  const int64_t version = out_.state_version();
  evaluate(2);
  EXPECT_GT(out_.state_version(), version);
  work_->add_to_server_state(&state);
  EXPECT_EQ(state.evaluated_barrier(), 2);
}

TEST_F(BackupSharesTest, BarrierCountsTheSamplesThatWereTaken) {
  make_three();
  commit(0, 0, {0, 1});
  commit(1, 0, {1, 2});
  EXPECT_EQ(work_->samples_at(1), 4) << "two of four micro-batches of 2";
}

TEST_F(BackupSharesTest, ClosingNoticeCountsDroppedPushes) {
  make_three();
  EXPECT_EQ(work_->closing_notice(), "");
  Commit late{worker(2), 0, {2, 4}, {}, false};
  late.dropped = true;
  progress_->add(late, 2);
  EXPECT_EQ(work_->closing_notice(), "dropped 1 push of worker 2: their steps used other pushes");
  progress_->add(late, 1);
  EXPECT_THAT(work_->closing_notice(), HasSubstr("dropped 1 push of worker 1, 1 of worker 2:"));
}

}  // namespace
}  // namespace pushpull
