#include "ps/run/training_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// One worker. Server 0 is this process, server 1 another one.
class TrainingRunTest : public testing::Test {
 protected:
  TrainingRun& make(const std::string& keys, int64_t elements = 3000, const Start& start = {}) {
    options_.job = job_of(keys);
    options_.servers = 2;
    members_.add({.role = wire::ROLE_SERVER, .rank = 0, .incarnation = 1, .host = "head"});
    members_.add({.role = wire::ROLE_SERVER,
                  .rank = 1,
                  .incarnation = 50,
                  .host = "node",
                  .data_endpoint = "tcp://10.0.0.1:7000",
                  .peer = "second"});
    members_.add({.role = wire::ROLE_WORKER,
                  .rank = 0,
                  .incarnation = kAnna,
                  .host = "node",
                  .peer = "worker",
                  .declared = true});
    Declaration declaration;
    declaration.table = table_of(elements);
    declaration.train_samples = 64;
    declaration.test_samples = 8;
    declaration.heads = heads_;
    run_.reset();
    run_.emplace(options_, declaration, start, heard_, members_, out_);
    return *run_;
  }
  std::string result(int64_t step) {
    wire::Header header;
    wire::EvalResult& result = *header.mutable_eval_result();
    result.set_incarnation(kAnna);
    result.set_step(step);
    for (int64_t i = 0; i < run_->evaluations().chunks(); ++i) {
      result.add_chunks()->set_chunk(i);
      for (size_t head = 0; head < heads_.size(); ++head) {
        result.mutable_chunks()->rbegin()->add_sums()->set_counted(1);
      }
    }
    return reason_of(run_->on_message("worker", header));
  }
  std::string record_part(uint64_t server, int64_t first) {
    wire::Header header;
    header.mutable_record_part()->set_incarnation(server);
    header.mutable_record_part()->set_first(first);
    return reason_of(run_->on_message("second", header));
  }

  CoordinatorOptions options_;
  Membership members_{10};
  Actions out_;
  std::vector<HeadInfo> heads_;
  StoringListener heard_;
  std::optional<TrainingRun> run_;
};

TEST_F(TrainingRunTest, IsCompleteWhenAllIsComputedEvaluatedAndOnDisk) {
  TrainingRun& run = make("");
  for (int64_t step = 0; step < 10; ++step) run.on_commit({kAnna, step, {0, 4}, {}, true});
  EXPECT_FALSE(run.complete());
  EXPECT_EQ(result(10), "");
  EXPECT_FALSE(run.complete());
  run.on_barrier_open(10);
  EXPECT_EQ(write_snapshots(run), 10);
  EXPECT_TRUE(run.complete());
}

TEST_F(TrainingRunTest, ChosenCheckpointIsHeldUntilAllKnowAndThenABarrier) {
  TrainingRun& run = make("checkpoint-every = auto\n");
  EXPECT_EQ(run.choose_checkpoint(0), 2) << "no worker has the weights of step 1";
  EXPECT_FALSE(run.choose_checkpoint(0)) << "one at a time";
  EXPECT_TRUE(run.barriers().checkpoint_due(2));
  wire::State state;
  run.add_to_server_state(&state, *members_.find(1));
  EXPECT_EQ(state.held_step(), 2);
  EXPECT_EQ(state.chosen_checkpoints(0), 2);
  wire::State for_worker;
  run.add_to_worker_state(&for_worker, *members_.find(kAnna));
  EXPECT_EQ(for_worker.chosen_checkpoints(0), 2);
  run.on_tick();
  for (const uint64_t who : {uint64_t{50}, kAnna}) {
    members_.find(who)->state_version = out_.state_version();
  }
  run.on_tick();
  state.Clear();
  run.add_to_server_state(&state, *members_.find(1));
  EXPECT_EQ(state.held_step(), 0);
  EXPECT_EQ(state.chosen_checkpoints(0), 2);
  write_snapshots(run);
  run.on_barrier_open(2);
  EXPECT_EQ(write_snapshots(run), 2) << "the checkpoint is gathered";
  EXPECT_EQ(run.choose_checkpoint(5), 5);
}

TEST_F(TrainingRunTest, WithLeasesAChosenCheckpointIsHeldUntilAllWithARankKnow) {
  TrainingRun& run = make("checkpoint-every = auto\nstrategy = async\n");
  members_.add({.role = wire::ROLE_WORKER, .rank = -1, .incarnation = kBert, .peer = "spare"});
  const auto acknowledge = [&](uint64_t who) {
    members_.find(who)->state_version = out_.state_version();
    run.on_tick();
  };
  acknowledge(kAnna);
  out_.take_state_wanted();
  EXPECT_EQ(run.choose_checkpoint(4), 4);
  EXPECT_TRUE(out_.take_state_wanted()) << "members hear it at once";
  run.on_tick();
  EXPECT_TRUE(run.choosing()) << "an older State does not count";
  acknowledge(50);
  EXPECT_TRUE(run.choosing()) << "the worker does not know it yet";
  acknowledge(kAnna);
  EXPECT_FALSE(run.choosing());
  EXPECT_TRUE(out_.take_state_wanted()) << "servers may release it";
  run.on_tick();
  EXPECT_FALSE(out_.take_state_wanted()) << "only once";
}

TEST_F(TrainingRunTest, WithServersThatHoldWorkersBackWorkersNeedNotKnowAChosenCheckpoint) {
  TrainingRun& run = make("checkpoint-every = auto\n");
  EXPECT_EQ(run.choose_checkpoint(4), 4);
  members_.find(50)->state_version = out_.state_version();
  run.on_tick();
  EXPECT_FALSE(run.choosing());
}

// The pool, the counts and the snapshots follow the run's own barriers.
TEST_F(TrainingRunTest, EvaluationThatEndsTheRunLetsNoLeaseBeDrawn) {
  heads_ = {{"label", Metric::kAccuracy, 1}};
  TrainingRun& run = make("strategy = async\neval-every = 2\nstop-when = loss:1\n");
  const auto steps_drawn = [&] {
    std::vector<int64_t> steps;
    for (const wire::Lease& lease : run.leases(kAnna)) {
      if (!lease.evaluate()) steps.push_back(lease.step());
    }
    return steps;
  };
  for (int64_t step = 0; step < 4; ++step) {
    EXPECT_EQ(steps_drawn().front(), step);
    run.on_commit({kAnna, step, {0, 4}, {}, true});
    if (step % 2 == 0) continue;
    run.on_barrier_open(step + 1);
    EXPECT_EQ(steps_drawn(), std::vector<int64_t>{}) << "they wait for the result";
    EXPECT_EQ(result(step + 1), "");
  }
  EXPECT_TRUE(run.followed().stopped_early()) << "the second loss is no better";
  EXPECT_EQ(run.barriers().end_step, 4);
  EXPECT_EQ(steps_drawn(), std::vector<int64_t>{});
  EXPECT_NE(run.committed().counts_at(4), nullptr);
  EXPECT_FALSE(run.stop()) << "the run has ended";
  EXPECT_FALSE(run.choose_checkpoint(0));
}

TEST_F(TrainingRunTest, EndNeedsNoChosenCheckpoint) {
  TrainingRun& run = make("checkpoint-every = auto\n");
  EXPECT_FALSE(run.choose_checkpoint(10));
  EXPECT_EQ(run.choose_checkpoint(9), 9);
}

TEST_F(TrainingRunTest, StrategyLimitsTheStepsThatMayHaveBegun) {
  for (const auto& [strategy, step] :
       {std::pair<const char*, int64_t>{"sync", 2}, {"ssp:2", 6}, {"local:4", 4}, {"async", 0}}) {
    members_ = Membership(10);
    TrainingRun& run = make("checkpoint-every = auto\nstrategy = " + std::string(strategy) + "\n");
    EXPECT_EQ(run.choose_checkpoint(0).value_or(0), step) << strategy;
  }
}

TEST_F(TrainingRunTest, ZeroedGradientsAreReportedAtFirstAndAtEachDoubling) {
  TrainingRun& run = make("on-bad-gradient = skip\nsteps = 200\n");
  Commit commit{kAnna, 3, {0, 4}, {}, true};
  wire::BadGradient bad;
  bad.set_loss(2);
  bad.set_tensor(1);
  commit.bad = {bad};
  run.on_commit(commit);
  EXPECT_THAT(
      out_.take_notices(),
      testing::Contains(AllOf(HasSubstr("[train] the gradient of worker 0"),
                              HasSubstr("at step 3, micro-batch 2, is not finite in tensor "),
                              HasSubstr(": it counts as zeros"), HasSubstr("1 so far"))));
  size_t notices = 1;
  for (commit.step = 4; commit.step < 104; ++commit.step) {
    run.on_commit(commit);
    notices += out_.take_notices().size();
  }
  EXPECT_EQ(notices, 8U + 3U) << "at 16, 32 and 64";
  commit.counted = false;
  run.on_commit(commit);
  EXPECT_EQ(run.committed().counts().bad_gradients, 101);
}

TEST_F(TrainingRunTest, StopAfterEndsTheRunEarlier) {
  EXPECT_EQ(make("stop-after = 4\n").barriers().end_step, 4);
  EXPECT_EQ(run_->total_steps(), 10);
}

TEST_F(TrainingRunTest, ServersWithoutSlicesGetANotice) {
  make("", 101);
  EXPECT_THAT(out_.take_notices(),
              testing::Contains("the model has only 1 slice: 1 server holds none"));
}

TEST_F(TrainingRunTest, StateHasTheServersAndTheResumedStep) {
  TrainingRun& run = make("", 3000, {.step = 4, .updates = 4, .load = true});
  wire::State state;
  run.add_to_server_state(&state, *members_.find_rank(wire::ROLE_SERVER, 0));
  EXPECT_EQ(state.start_step(), 4);
  EXPECT_TRUE(state.load());
  EXPECT_EQ(state.released_barrier(), 3);
  ASSERT_EQ(state.workers_size(), 1);
  EXPECT_EQ(state.data_endpoints(1), "tcp://10.0.0.1:7000");
  wire::State for_worker;
  run.add_to_worker_state(&for_worker, *members_.find(kAnna));
  EXPECT_EQ(for_worker.assigned_size(), 1);
  EXPECT_EQ(for_worker.workers_size(), 0);
}

TEST_F(TrainingRunTest, InvalidMessagesAreRefusedWithTheReason) {
  make("eval-every = 4\n");
  EXPECT_EQ(result(4), "");
  EXPECT_EQ(result(3), "no-evaluation");
  members_.find(kAnna)->declared = false;
  EXPECT_EQ(result(4), "undeclared");
  wire::Header header;
  header.mutable_norms()->set_incarnation(kAnna);
  EXPECT_EQ(reason_of(run_->on_message("second", header)), "wrong-role");
  header.mutable_norms()->set_incarnation(50);
  header.mutable_norms()->set_step(10);
  EXPECT_EQ(reason_of(run_->on_message("second", header)), "wrong-step");
  header.mutable_arrived()->set_incarnation(50);
  EXPECT_EQ(reason_of(run_->on_message("second", header)), "no-choice");
  EXPECT_EQ(record_part(50, 0), "no-record");
}

TEST_F(TrainingRunTest, RecordIsCompleteWhenAllServersHaveReported) {
  make("strategy = async\nrecord = unwritten\n");
  EXPECT_TRUE(run_->logs_complete());
  members_.find(50)->stats.set_recorded(1);
  EXPECT_FALSE(run_->logs_complete());
  EXPECT_EQ(record_part(50, -1), "bad-record-part");
  EXPECT_EQ(record_part(kAnna, 0), "wrong-role");
  wire::Header header;
  wire::RecordPart& part = *header.mutable_record_part();
  part.set_incarnation(50);
  wire::Applied* applied = part.add_applied();
  applied->set_hi(4);
  applied->add_read_versions(0);
  applied->add_read_versions(0);
  EXPECT_EQ(reason_of(run_->on_message("second", header)), "");
  EXPECT_EQ(out_.take_messages().back().message.header.record_taken().through(), 1);
  EXPECT_TRUE(run_->logs_complete());
}

TEST_F(TrainingRunTest, CheckpointsFasterThanTheDiskGetOneNotice) {
  make("checkpoint-every = 2\n");
  out_.take_notices();
  run_->on_checkpoint_waits(4);
  run_->on_checkpoint_waits(6);
  const auto notices = out_.take_notices();
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_THAT(notices[0], HasSubstr("training waits at step 4"));
}

}  // namespace
}  // namespace pushpull
