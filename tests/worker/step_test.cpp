// The results and pushes of tasks, with a host that only records its calls.
#include "worker/exchange/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "datasets/dataset.h"

namespace pushpull {
namespace {

class Recorder : public StepHost {
 public:
  std::span<const float> weights() const override { return weights_; }
  WeightsNeeded weights_needed() override { return {}; }
  std::vector<Range> nodes() const override { return nodes_; }
  void hint_next() override { calls_ += "hint "; }
  bool may_become_void() const override { return in_group_; }
  void await_all_weights() override { calls_ += "weights "; }
  void begin_push() override { calls_ += "begin "; }
  Payload encoded(Range /*node*/, int /*slice*/, Payload part) override { return part; }
  void push(Range node, int slice, Payload part, bool may_go) override {
    calls_ += may_go ? "push " : "keep ";
    pushed_.push_back(
        {node, slice, std::vector<float>(part.floats(), part.floats() + part.float_count())});
  }
  void note_not_finite() override { calls_ += "failed "; }
  void await(const std::function<bool()>& /*done*/, const char* /*what*/) override {}
  void send(ToServer /*message*/) override {}
  int64_t unacknowledged() const override { return 0; }
  TimeSplit& split() override { return split_; }
  int64_t attempt() const override { return attempt_; }

  struct Pushed {
    Range node;
    int slice;
    std::vector<float> floats;
  };
  std::vector<float> weights_;
  int64_t attempt_ = 0;
  bool in_group_ = false;
  std::vector<Range> nodes_;
  std::string calls_;
  std::vector<Pushed> pushed_;
  TimeSplit split_ = watched_time_split();
};

class TaskTest : public testing::Test {
 protected:
  void make(const std::string& keys) {
    job_ = parse_job_text(
        "dataset = dummy\nmodel = mlp\nhidden = 4\nglobal-batch = 8\nmicro-batch = 2\nsteps = 10\n"
        "lr = 0.5\n" +
            keys,
        "test");
    dataset_ = open_dataset(job_);
    model_ = make_model(job_, dataset_->fields());
    const TensorTable& table = model_->table();
    map_ = std::make_unique<SliceMap>(table.total, job_.slice_bytes, 1);
    compute_ = std::make_unique<Compute>(job_, *dataset_, *model_, *map_,
                                         [this] { return over_ || over_after_-- == 0; });
    encoder_ = std::make_unique<Encoder>(job_, table, *map_);
    step_ = push_steps(job_, *model_, 10)({*compute_, *encoder_, *map_, heap_floats});
    host_.weights_.assign(static_cast<size_t>(table.total), 0.01F);
  }

  Job job_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SliceMap> map_;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<Step> step_;
  Recorder host_;
  bool over_ = false;
  int over_after_ = -1;  // micro-batches
};

TEST_F(TaskTest, GradientIsPushedNodeByNode) {
  make("strategy = sync\nclip-norm = 1\n");
  EXPECT_FALSE(step_->holds_back_pushes()) << "servers know the norm of the whole step";
  host_.nodes_ = {{0, 2}, {2, 3}};
  const auto result = step_->run({Task::kCompute, 0, {0, 3}}, host_);
  ASSERT_TRUE(result);
  EXPECT_EQ(host_.calls_, "hint begin push push ");
  EXPECT_EQ(result->losses.size(), 3U);
  EXPECT_EQ(result->squares, 0.0);
  EXPECT_EQ(host_.pushed_[1].node, (Range{2, 3}));
}

TEST_F(TaskTest, InAGroupThePushBeginsWithTheLastNode) {
  make("strategy = sync\n");
  host_.in_group_ = true;
  host_.nodes_ = {{0, 2}, {2, 3}};
  over_after_ = 2;  // in the second node
  EXPECT_FALSE(step_->run({Task::kCompute, 0, {0, 3}}, host_));
  EXPECT_EQ(host_.calls_, "hint ") << "a task that ends with its group has no push";
  host_.calls_.clear();
  ASSERT_TRUE(step_->run({Task::kCompute, 0, {0, 3}}, host_));
  EXPECT_EQ(host_.calls_, "hint begin push push ");
  EXPECT_EQ(host_.pushed_[0].node, (Range{0, 2}));
  EXPECT_EQ(host_.pushed_[1].node, (Range{2, 3}));
}

TEST_F(TaskTest, ClippedPushWaitsForItsNorm) {
  make("strategy = async\nclip-norm = 1\n");
  EXPECT_TRUE(step_->holds_back_pushes());
  host_.nodes_ = {{0, 2}};
  const auto result = step_->run({Task::kCompute, 0, {0, 2}}, host_);
  ASSERT_TRUE(result);
  EXPECT_EQ(host_.calls_, "hint begin keep ");
  double squares = 0;
  for (const float g : host_.pushed_[0].floats) squares += double{g} * g / 4;
  EXPECT_GT(squares, 0.0);
  EXPECT_NEAR(result->squares, squares, 1e-9 + 1e-6 * squares)
      << "the norm of the mean over 2 micro-batches";
}

TEST_F(TaskTest, RoundOfLocalStepsPushesTheChangeOfItsWeights) {
  make("strategy = local:2\n");
  host_.nodes_ = {{0, 2}};
  const auto result = step_->run({Task::kCompute, 0, {0, 2}, 2}, host_);
  ASSERT_TRUE(result);
  EXPECT_EQ(host_.calls_, "begin hint push ");
  EXPECT_EQ(result->losses.size(), 4U);
  bool moved = false;
  for (const float f : host_.pushed_[0].floats) moved = moved || f != 0.0F;
  EXPECT_TRUE(moved);
}

TEST_F(TaskTest, InAGroupThePushBeginsWhenTheRoundIsComputed) {
  make("strategy = local:2\noptimizer = momentum\n");
  host_.in_group_ = true;
  host_.nodes_ = {{0, 2}};
  ASSERT_TRUE(step_->run({Task::kCompute, 0, {0, 2}, 2}, host_));
  EXPECT_EQ(host_.calls_, "weights hint begin push ");
  const std::vector<float> first = host_.pushed_.back().floats;
  step_->run({Task::kCompute, 0, {0, 2}, 2}, host_);
  EXPECT_NE(host_.pushed_.back().floats, first) << "momentum of the round before";
  host_.attempt_ = 1;
  step_->run({Task::kCompute, 0, {0, 2}, 2}, host_);
  EXPECT_EQ(host_.pushed_.back().floats, first) << "a group that has changed begins without";
}

TEST_F(TaskTest, NothingIsPushedAfterTheEndOfTheJob) {
  for (const char* strategy : {"strategy = sync\n", "strategy = local:2\n"}) {
    make(strategy);
    over_ = true;
    host_ = {};
    host_.weights_.assign(static_cast<size_t>(map_->total()), 0.01F);
    host_.nodes_ = {{0, 2}};
    EXPECT_FALSE(step_->run({Task::kCompute, 0, {0, 2}, 2}, host_));
    EXPECT_TRUE(host_.pushed_.empty());
    over_ = false;
  }
}

TEST_F(TaskTest, NonFiniteGradientIsRecorded) {
  make("strategy = sync\n");
  host_.weights_.assign(host_.weights_.size(), std::nanf(""));
  host_.nodes_ = {{0, 2}};
  EXPECT_THROW(step_->run({Task::kCompute, 0, {0, 2}}, host_), Error);
  EXPECT_EQ(host_.calls_, "hint failed ");
}

}  // namespace
}  // namespace pushpull
