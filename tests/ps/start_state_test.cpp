#include "ps/report/start_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/io/safetensors.h"
#include "common/job/job.h"
#include "ps/report/run_recorder.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class StartStateTest : public testing::Test {
 protected:
  StartStateTest() {
    declaration_.table = table_of(300);
    declaration_.train_samples = 64;
    declaration_.test_samples = 16;
    declaration_.data_digest = "digest";
    declaration_.numerics = "cpu";
  }
  std::string dir() const { return folder_ / "checkpoints"; }
  Job job(const std::string& keys = "") const {
    return job_of("optimizer = momentum\nlr = 0.1\nstrategy = sync\n" + keys);
  }
  Job resuming(const std::string& keys = "") const {
    return job("resume = true\ncheckpoint-dir = " + dir() + "\n" + keys);
  }
  void checkpoint(int64_t step, const Job& of, const std::string& run = "",
                  const EvaluationRecord& evaluation = {}) {
    CheckpointStore store(dir(), 3);
    CheckpointState state;
    state.step = step;
    state.updates = step;
    state.total_steps = 10;
    state.job_ini = to_ini(of);
    state.data_digest = "digest";
    state.numerics = "cpu";
    state.choices = "linear a";
    state.run = run;
    state.evaluation = evaluation;
    std::vector<float> weights(300);
    for (size_t i = 0; i < 300; ++i) weights[i] = static_cast<float>(step) + static_cast<float>(i);
    const std::vector<float> slot(300, 0.5F);
    const std::vector<std::span<const float>> slots{slot};
    store.write(state, declaration_.table, weights, slots, state_names(OptimizerKind::kMomentum));
  }

  ScratchFolder folder_;
  Declaration declaration_;
};

TEST_F(StartStateTest, FreshRunStartsFromTheInitRules) {
  StartState start(job(), folder_ / "default");
  EXPECT_FALSE(start.resumes());
  EXPECT_EQ(start.checkpoint_dir(), folder_ / "default");
  EXPECT_EQ(start.match(job(), declaration_), nullptr);
}

TEST_F(StartStateTest, FreshRunMovesItsDefaultFolderAsideBeforeItWrites) {
  checkpoint(5, job());
  StartState start(job(), dir());
  EXPECT_FALSE(start.resumes());
  EXPECT_TRUE(start.take_notices().empty());
  EXPECT_EQ(CheckpointStore(dir(), 3).steps(), (std::vector<int64_t>{5}));
  EXPECT_TRUE(start.open_store(job()).steps().empty());
  EXPECT_THAT(start.take_notices(), ElementsAre(HasSubstr(dir() + ".1")));
  EXPECT_EQ(CheckpointStore(dir() + ".1", 3).steps(), (std::vector<int64_t>{5}));
}

TEST_F(StartStateTest, ResumedRunAndNamedFolderMoveNothing) {
  checkpoint(5, job());
  StartState start(job("resume = true\n"), dir());
  EXPECT_EQ(start.open_store(job()).steps(), (std::vector<int64_t>{5}));
  StartState named(resuming(), "unused");
  EXPECT_EQ(named.open_store(job()).steps(), (std::vector<int64_t>{5}));
}

TEST_F(StartStateTest, FreshRunDoesNotTouchANamedCheckpointFolder) {
  checkpoint(5, job());
  const Job fresh = job("checkpoint-dir = " + dir() + "\n");
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { const StartState s(fresh, "unused"); }),
              AllOf(HasSubstr(dir()), HasSubstr("step 5"), HasSubstr("resume=true")));
  EXPECT_EQ(CheckpointStore(dir(), 3).steps(), (std::vector<int64_t>{5}));
}

TEST_F(StartStateTest, ResumeTrueNeedsACheckpointAndAutoDoesNot) {
  EXPECT_THAT(thrown(ErrorCode::kData, [&] { const StartState s(resuming(), "unused"); }),
              AllOf(HasSubstr(dir()), HasSubstr("resume=auto")));
  StartState start(job("resume = auto\ncheckpoint-dir = " + dir() + "\n"), "unused");
  EXPECT_FALSE(start.resumes());
}

TEST_F(StartStateTest, ResumesFromTheNewestCheckpointWithAllItsState) {
  checkpoint(3, job());
  checkpoint(7, job());
  for (const std::string resume : {"true", "auto"}) {
    const Job again = job("resume = " + resume + "\ncheckpoint-dir = " + dir() + "\n");
    StartState start(again, "unused");
    ASSERT_TRUE(start.resumes());
    EXPECT_EQ(start.resumed_step(), 7);
    const auto state = start.match(again, declaration_);
    ASSERT_TRUE(state);
    EXPECT_EQ(state->step, 7);
    EXPECT_EQ(state->updates, 7);
    EXPECT_EQ(state->weights[250], 257.0F);
    ASSERT_EQ(state->slots.size(), 1U);
    EXPECT_EQ(state->slots[0][0], 0.5F);
    EXPECT_TRUE(start.take_notices().empty());
  }
}

TEST_F(StartStateTest, LostCodecResidualsAreReported) {
  const std::string codec = "codec = int8\n";
  checkpoint(3, job(codec));
  StartState start(job(codec + "resume = true\ncheckpoint-dir = " + dir() + "\n"), "unused");
  EXPECT_THAT(start.take_notices(), ElementsAre(HasSubstr("restart at zero")));
}

TEST_F(StartStateTest, DamagedCheckpointIsSkippedWithANotice) {
  checkpoint(3, job());
  checkpoint(7, job());
  write_bytes(dir() + "/step-00000007/model.safetensors", "torn");
  StartState start(resuming(), "unused");
  EXPECT_EQ(start.resumed_step(), 3);
  EXPECT_THAT(start.take_notices(), ElementsAre(HasSubstr("step-00000007")));
}

TEST_F(StartStateTest, KeysThatChangeTheRunMayNotChangeAtAResume) {
  checkpoint(3, job());
  EXPECT_THAT(thrown(ErrorCode::kUsage,
                     [&] { const StartState s(resuming("seed = 99\nhidden = 7\n"), "unused"); }),
              AllOf(HasSubstr("seed"), HasSubstr("hidden"), HasSubstr("step-00000003")));
  // keys of where and how the run is computed may change
  EXPECT_TRUE(
      StartState(resuming("slice-bytes = 8192\nheartbeat-timeout = 3\n"), "unused").resumes());
}

TEST_F(StartStateTest, CheckpointOfAnotherModelIsRefused) {
  checkpoint(3, job());
  StartState start(resuming(), "unused");
  declaration_.table = table_of(301);
  EXPECT_THAT(thrown(ErrorCode::kData, [&] { start.match(resuming(), declaration_); }),
              HasSubstr("step-00000003"));
}

TEST_F(StartStateTest, AutoLeavesAFinishedJobAndTrueRefusesIt) {
  Job finished = resuming();
  finished.steps = 7;
  checkpoint(7, finished);
  finished.resume = Resume::kAuto;
  EXPECT_TRUE(StartState(finished, "unused").complete());
  finished.resume = Resume::kTrue;
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { StartState(finished, "unused"); }),
              HasSubstr("nothing is left to do"));
}

TEST_F(StartStateTest, ARunWithoutItsSummaryIsEvaluatedAtItsEnd) {
  for (const Resume resume : {Resume::kAuto, Resume::kTrue}) {
    Job finished = resuming();
    finished.steps = 7;
    checkpoint(7, finished);
    finished.resume = resume;
    StartState start(finished, "unused", RunSummaryFile::kMissing);
    EXPECT_FALSE(start.complete());
    ASSERT_TRUE(start.match(finished, declaration_));
    EXPECT_EQ(start.resumed_step(), 7);
    EXPECT_THAT(start.take_notices(), ElementsAre(HasSubstr("no summary.json")));
    finished.steps = 6;
    finished.resume = Resume::kAuto;
    EXPECT_TRUE(StartState(finished, "unused", RunSummaryFile::kMissing).complete())
        << "it has more steps than the job";
  }
}

TEST_F(StartStateTest, OtherDataOrArithmeticGiveANotice) {
  checkpoint(3, job());
  StartState start(resuming(), "unused");
  declaration_.data_digest = "other";
  declaration_.numerics = "gpu";
  EXPECT_TRUE(start.match(resuming(), declaration_));
  const auto not_same = HasSubstr("will not give the same bits");
  EXPECT_THAT(start.take_notices(), ElementsAre(not_same, not_same));
}

TEST_F(StartStateTest, AlgorithmsOfTheCheckpointAreUsedIfTheyFit) {
  checkpoint(3, job());
  const StartState start(resuming(), "unused");
  declaration_.choices = "linear b";
  EXPECT_EQ(start.choices(declaration_), "linear a");
  declaration_.numerics = "gpu";
  EXPECT_EQ(start.choices(declaration_), "");
  EXPECT_EQ(StartState(job(), folder_ / "default").choices(declaration_), "");
}

TEST_F(StartStateTest, FinishedRunHasNothingToResume) {
  checkpoint(10, job());
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { StartState(resuming(), "unused"); }),
              HasSubstr("step 10 of 10"));
}

TEST_F(StartStateTest, ALaterTermMayStartAtTheEndOfTheRun) {
  for (const char* keys : {"", "resume = auto\n", "resume = true\n", "stop-after = 7\n"}) {
    const Job same = job(std::string("checkpoint-dir = ") + dir() + "\n" + keys);
    const int64_t end = same.stop_after > 0 ? same.stop_after : 10;
    std::filesystem::remove_all(dir());
    checkpoint(5, same, "run a");
    checkpoint(end, same, "run a");
    StartState start(same, "unused", "run a");
    EXPECT_TRUE(start.continues_run());
    EXPECT_FALSE(start.complete()) << "the evaluation is left";
    EXPECT_EQ(start.match(same, declaration_)->step, end) << keys;
    EXPECT_TRUE(start.take_notices().empty());
  }
}

TEST_F(StartStateTest, ALaterTermWithoutAnUndamagedCheckpointSaysWhy) {
  const Job same = job("checkpoint-dir = " + dir() + "\n");
  for (const int64_t step : {3, 5}) {
    checkpoint(step, same, "run a");
    std::filesystem::resize_file(
        dir() + "/step-0000000" + std::to_string(step) + "/model.safetensors", 100);
  }
  StartState start(same, "unused", "run a");
  EXPECT_FALSE(start.resumes());
  EXPECT_THAT(start.take_notices(),
              ElementsAre(HasSubstr("step-00000005"), HasSubstr("-00000003")));
}

TEST_F(StartStateTest, RunWithAnEarlyStopStopsThere) {
  checkpoint(4, job("stop-after = 4\n"));
  EXPECT_THAT(
      thrown(ErrorCode::kUsage, [&] { StartState(resuming("stop-after = 4\n"), "unused"); }),
      HasSubstr("step 4 of 4"));
  StartState further(resuming(), "unused");
  EXPECT_EQ(further.match(resuming(), declaration_)->step, 4);
}

TEST_F(StartStateTest, InitialWeightsComeFromAFile) {
  const std::vector<float> values(300, 2.0F);
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& t : declaration_.table.tensors) {
    tensors.push_back({t.name, t.shape, {values.data(), static_cast<size_t>(t.size)}});
  }
  write_safetensors(folder_ / "init.safetensors", tensors, {});
  const Job with_weights = job("init-from = " + (folder_ / "init.safetensors") + "\n");
  StartState start(with_weights, folder_ / "default");
  const auto state = start.match(with_weights, declaration_);
  ASSERT_TRUE(state);
  EXPECT_EQ(state->step, 0);
  EXPECT_EQ(state->updates, 0);
  EXPECT_EQ(state->weights, values);
  EXPECT_TRUE(state->slots.empty());
  declaration_.table = table_of(301);
  EXPECT_THAT(thrown(ErrorCode::kData, [&] { start.match(with_weights, declaration_); }),
              HasSubstr("init.safetensors"));
}

// The drawn tensors have the bits of a job that draws all.
TEST_F(StartStateTest, TensorsThatTheFileLacksAreDrawnAsWithoutAFile) {
  const auto& all = declaration_.table.tensors;
  const std::vector<float> values(300, 2.0F);
  const TensorInfo& first = all.front();
  const std::vector<NamedTensor> part = {
      {first.name, first.shape, {values.data(), static_cast<size_t>(first.size)}},
      {"pooler", {1}, {values.data(), 1}}};
  write_safetensors(folder_ / "part.safetensors", part, {});
  const Job allows =
      job("init-from-missing = allow\ninit-from = " + (folder_ / "part.safetensors") + "\n");
  StartState start(allows, folder_ / "default");
  std::vector<float> want = initial_weights(allows, declaration_.table);
  std::fill_n(want.begin() + first.offset, first.size, 2.0F);
  EXPECT_EQ(start.match(allows, declaration_)->weights, want);
  EXPECT_EQ(start.initial().missing.size(), all.size() - 1);
  const std::vector<std::string> notices = start.take_notices();
  ASSERT_EQ(notices.size(), 2U);
  EXPECT_THAT(notices[0], HasSubstr("part.safetensors lacks, drawn anew: " + all[1].name));
  EXPECT_THAT(notices[1], HasSubstr("has and the model lacks: pooler"));
}

TEST_F(StartStateTest, ARunThatStoppedEarlyIsComplete) {
  checkpoint(8, job(), "", {"loss", 8, 4, 0.5, 2});
  const std::string keys = "checkpoint-dir = " + dir() + "\nresume = auto\neval-every = 2\n";
  const Job rule = job(keys + "stop-when = loss:2\n");
  StartState start(rule, "unused");
  EXPECT_TRUE(start.complete());
  EXPECT_THAT(start.take_notices().back(), HasSubstr("stopped early (stop-when = loss:2)"));
  for (const char* other : {"stop-when = loss:3\n", "stop-when = accuracy:2\n", ""}) {
    EXPECT_FALSE(StartState(job(keys + other), "unused").complete()) << other;
  }
}

TEST_F(StartStateTest, ForeignFileIsNoInitialWeights) {
  write_bytes(folder_ / "foreign", std::string(8, '\xff') + "{}");
  EXPECT_THAT(thrown(ErrorCode::kData,
                     [&] {
                       const StartState s(job("init-from = " + (folder_ / "foreign") + "\n"),
                                          folder_ / "default");
                     }),
              HasSubstr("foreign"));
}

}  // namespace
}  // namespace pushpull
