// Tests the checks of `pushpull replay` before it computes, and a small run computed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <utility>

#include "cli/commands.h"
#include "cli/replay.h"
#include "common/base/error.h"
#include "common/io/checkpoint.h"
#include "common/update/norm.h"
#include "ps/report/run_recorder.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"
#include "worker/compute/compute.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kKeys[] =
    "model = mlp\ndataset = dummy\ninput = 4\nclasses = 2\ntrain-samples = 32\n"
    "test-samples = 8\nglobal-batch = 8\nmicro-batch = 2\noptimizer = sgd\nsteps = 4\n"
    "slice-bytes = 4096\nstrategy = async\nrecord = r\n";

Job job_of_keys(const std::string& keys = "hidden = none\nlr = 0.1\n") {
  return parse_job_text(kKeys + keys, "test");
}

class ReplayTest : public testing::Test {
 protected:
  void make(const std::string& keys) {
    job_ = job_of_keys(keys);
    dataset_ = open_dataset(job_);
    model_ = make_model(job_, dataset_->fields());
    record_.job_ini = to_ini(job_);
    record_.total_steps = 4;
    record_.start = recorded_start(job_, model_->table(), nullptr, false);
    record_.pushes.clear();
    record_.updates.clear();
  }
  // `reads`: the version that was read at server 0, the only one.
  void push(int64_t step, Range range, int64_t read) {
    record_.updates.push_back({0, record_.pushes.size(), false});
    record_.pushes.push_back({0, step, range, {read}});
  }
  ReplayResult run(std::optional<size_t> stop_at = std::nullopt) {
    return replay({record_, job_, *dataset_, *model_, nullptr, stop_at, [](size_t) {}});
  }

  Job job_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Model> model_;
  RunRecord record_;
};

// Two pushes in turn, each on the newest weights, are plain SGD.
TEST_F(ReplayTest, AppliesEachPushToTheWeightsThatItRead) {
  make("hidden = none\nlr = 0.1\n");
  push(0, {0, 2}, 0);
  push(0, {2, 4}, 1);
  push(1, {0, 2}, 0);  // stale
  const ReplayResult all = run();
  EXPECT_EQ(all.done, 3U);
  EXPECT_FALSE(all.verified) << "without a hash to compare with";
  EXPECT_FALSE(all.first_not_finite);
  record_.weights_sha256 = all.weights_sha256;
  EXPECT_EQ(run().verified, true);
  EXPECT_FALSE(run(2).verified) << "stopped before the end";
  record_.weights_sha256 = "other";
  EXPECT_EQ(run().verified, false);

  // the stale push again, on other weights
  record_.pushes[2].reads[0] = 2;
  EXPECT_NE(run().weights_sha256, all.weights_sha256);
  record_.pushes[2].reads[0] = 0;
  // by hand: w -= lr (k / M) g(w_read)
  std::vector<std::vector<float>> weights{initial_weights(job_, model_->table())};
  const SliceMap map(model_->table().total, job_.slice_bytes, 1);
  Compute compute(job_, *dataset_, *model_, map, [] { return false; });
  for (const RecordedPush& p : record_.pushes) {
    std::vector<float> losses;
    compute.begin(p.step, {p.range}, weights[static_cast<size_t>(p.reads[0])]);
    compute.node([](int, const Payload&) {}, losses);
    std::vector<float> next = weights.back();
    for (size_t i = 0; i < next.size(); ++i) {
      next[i] -= static_cast<float>(0.1 * 0.5) * (compute.sum()[i] / 2.0F);
    }
    weights.push_back(next);
  }
  EXPECT_EQ(all.weights, weights.back());
}

// The mean over the micro-batches of a step's pushes, clipped by its norm.
TEST_F(ReplayTest, AStepOfBackupIsOneUpdateOfItsPushes) {
  make("hidden = none\nlr = 0.1\nclip-norm = 0.01\n");
  job_.strategy = Strategy::parse("backup:1");
  push(0, {2, 4}, 0);
  push(0, {0, 1}, 0);
  push(1, {0, 1}, 1);
  const SliceMap map(model_->table().total, job_.slice_bytes, 1);
  Compute compute(job_, *dataset_, *model_, map, [] { return false; });
  const RangeUpdate whole(model_->table(), {0, model_->table().total}, job_.optimizer);
  std::vector<float> weights = initial_weights(job_, model_->table());
  const auto gradient = [&](int64_t step, Range range) {
    std::vector<float> losses;
    compute.begin(step, {range}, weights);
    compute.node([](int, const Payload&) {}, losses);
    return std::vector<float>(compute.sum().begin(), compute.sum().end());
  };
  const auto apply = [&](const std::vector<float>& sum, float count) {
    const double squares = whole.squares({0, std::ssize(sum)}, sum.data(), count);
    const auto clip = static_cast<float>(clip_factor(std::sqrt(squares), 0.01));
    EXPECT_LT(clip, 1.0F);
    for (size_t i = 0; i < sum.size(); ++i) weights[i] -= 0.1F * (sum[i] / count * clip);
  };
  std::vector<float> sum = gradient(0, {0, 1});
  const std::vector<float> right = gradient(0, {2, 4});
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  apply(sum, 3.0F);
  EXPECT_EQ(run(2).weights, weights);
  EXPECT_EQ(run(1).weights, initial_weights(job_, model_->table())) << "after half of a step";
  apply(gradient(1, {0, 1}), 1.0F);
  EXPECT_EQ(run().weights, weights);
}

TEST_F(ReplayTest, NamesTheFirstUpdateWithANonFiniteWeight) {
  make("hidden = none\nlr = 1e38\n");
  push(0, {0, 2}, 0);
  push(0, {2, 4}, 0);
  for (int i = 0; i < 200; ++i) push(1, {0, 2}, 0);  // the same step repeatedly, until it overflows
  const ReplayResult result = run();
  ASSERT_TRUE(result.first_not_finite);
  const FirstNotFinite& first = *result.first_not_finite;
  EXPECT_TRUE(first.in_weight);
  EXPECT_GT(first.update, 0U);
  EXPECT_FALSE(first.tensor.empty());
  EXPECT_THAT(first.text, AllOf(HasSubstr("update " + std::to_string(first.update)),
                                HasSubstr(first.tensor), HasSubstr("server 0")));
  EXPECT_FALSE(run(first.update - 1).first_not_finite);
  EXPECT_TRUE(run(first.update).first_not_finite);
}

TEST_F(ReplayTest, NamesTheUpdateBeforeANonFiniteLoss) {
  make("hidden = 8\nlr = 1e30\n");
  push(0, {0, 2}, 0);
  push(0, {2, 4}, 0);
  record_.failed = RecordedPush{1, 1, {0, 2}, {1}};
  const ReplayResult result = run();
  ASSERT_TRUE(result.first_not_finite);
  EXPECT_FALSE(result.first_not_finite->in_weight);
  EXPECT_EQ(result.first_not_finite->update, 1U)
      << "the weights that it read do not include the second update";
  EXPECT_EQ(result.first_not_finite->computed, record_.failed);
  EXPECT_THAT(result.first_not_finite->text, HasSubstr("worker 1, step 1"));
  // without weights in the record the loss cannot be computed, and no result is invented
  record_.failed->reads[0] = 9;
  EXPECT_FALSE(run().first_not_finite);
  // a push that the run applied must have been finite there
  record_.failed.reset();
  push(1, {0, 2}, 2);
  EXPECT_THAT(thrown(ErrorCode::kNotFinite, [&] { run(); }),
              AllOf(HasSubstr("update 3"), HasSubstr("was finite in the run")));
}

TEST_F(ReplayTest, RefusesAnImpossibleOrder) {
  make("hidden = none\nlr = 0.1\n");
  push(0, {0, 2}, 1);
  EXPECT_THAT(thrown(ErrorCode::kData, [&] { run(); }), HasSubstr("update 1"));
}

TEST_F(ReplayTest, AnotherJobIsNamedByItsKeys) {
  make("hidden = none\nlr = 0.1\n");
  EXPECT_EQ(job_to_replay(record_, std::nullopt, ""), job_);
  Job elsewhere = job_;
  elsewhere.slice_bytes = 1 << 20;
  elsewhere.record = "";
  elsewhere.heartbeat_timeout_s = 1.0;
  EXPECT_EQ(job_to_replay(record_, elsewhere, "a.ini").slice_bytes, 4096)
      << "the record defines the slices of the servers";
  Job other = job_;
  other.seed = 9;
  other.schedule.lr = 0.3;
  EXPECT_THAT(
      thrown(ErrorCode::kUsage, [&] { job_to_replay(record_, other, "a.ini"); }),
      AllOf(HasSubstr("a.ini"), HasSubstr("seed"), HasSubstr("lr"), Not(HasSubstr("slice-bytes"))));
}

TEST_F(ReplayTest, MustStartFromTheRunsInitialState) {
  make("hidden = none\nlr = 0.1\n");
  const TensorTable& table = model_->table();
  EXPECT_EQ(start_to_replay(record_, job_, table, ""), nullptr);
  EXPECT_THAT(
      thrown(ErrorCode::kUsage, [&] { start_to_replay(record_, job_, table, "somewhere"); }),
      AllOf(HasSubstr("--checkpoint somewhere"), HasSubstr("remove it")));
  Job other = job_;
  other.seed = 2;
  EXPECT_THAT(thrown(ErrorCode::kData, [&] { start_to_replay(record_, other, table, ""); }),
              HasSubstr("not what the run began with"));
  FlatState state;
  state.step = 2;
  state.updates = 5;
  state.weights.assign(static_cast<size_t>(table.total), 0.5F);
  record_.start = recorded_start(job_, table, &state, true);
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { start_to_replay(record_, job_, table, ""); }),
              AllOf(HasSubstr("--checkpoint"), HasSubstr("step 2")));
  const ScratchFolder folder;
  CheckpointState meta;
  meta.step = 2;
  meta.updates = 5;
  meta.total_steps = 4;
  meta.job_ini = to_ini(job_);
  CheckpointStore store(folder.path(), 5);
  store.write(meta, table, state.weights, {}, {});
  meta.step = 3;
  store.write(meta, table, std::vector<float>(state.weights.size(), 1.0F), {}, {});
  EXPECT_EQ(start_to_replay(record_, job_, table, folder.path())->weights, state.weights);
  EXPECT_EQ(start_to_replay(record_, job_, table, folder / "step-00000002")->updates, 5);
  EXPECT_THAT(thrown(ErrorCode::kData,
                     [&] { start_to_replay(record_, job_, table, folder / "step-00000003"); }),
              HasSubstr("not what the run began with"));
  record_.start.step = 1;
  EXPECT_THAT(
      thrown(ErrorCode::kData, [&] { start_to_replay(record_, job_, table, folder.path()); }),
      HasSubstr("holds no checkpoint of step 1"));
}

}  // namespace
}  // namespace pushpull
