#include "worker/exchange/local_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "common/job/job.h"

namespace pushpull::local_steps_test {
namespace {

constexpr int64_t kElements = 3000;
constexpr Range kShare{2, 5};  // three micro-batches

// A weight that is trained and one that averages.
TensorTable table() {
  TensorTable out;
  TensorInfo info;
  info.name = "weight";
  info.shape = {kElements - 100};
  out.add(info);
  info.name = "running_mean";
  info.rule = UpdateRule::kAverage;
  info.average_momentum = 0.25F;
  info.shape = {100};
  out.add(info);
  return out;
}

class LocalStepsTest : public testing::Test {
 protected:
  void make(const std::string& keys) {
    job_ = parse_job_text(
        "dataset = dummy\nsteps = 10\nglobal-batch = 16\nmicro-batch = 2\nstrategy = local:4\n" +
            keys,
        "test");
    steps_ = std::make_unique<LocalSteps>(job_, table(), SliceMap(kElements, 4096, 2), 10);
  }
  static std::vector<float> all(float value) {
    return std::vector<float>(static_cast<size_t>(kElements), value);
  }
  void step(int64_t step, const std::vector<float>& sum) {
    const RangeUpdate whole(table(), {0, kElements}, job_.optimizer);
    steps_->step(step, sum, whole.all_squares(sum.data(), static_cast<double>(kShare.size())));
  }
  std::vector<float> change(const std::vector<float>& start) {
    std::vector<float> out;
    int next = 0;
    steps_->finish(start, [&](int slice, const Payload& part) {
      EXPECT_EQ(slice, next++);
      out.insert(out.end(), part.floats(), part.floats() + part.float_count());
    });
    return out;
  }

  Job job_;
  std::unique_ptr<LocalSteps> steps_;
};

// The middle block of three is stage 1's, which also reads some elements of stage 0.
TEST_F(LocalStepsTest, AStageMovesItsOwnElementsOnly) {
  make("optimizer = momentum\nlr = 0.5\n");
  const SliceMap map(kElements, 4096, 2, {kBlockElements, 2 * kBlockElements});
  steps_ = std::make_unique<LocalSteps>(job_, table(), map, 10, LocalMemory{},
                                        LocalPart{1, {{10, 20}, {kBlockElements, 2000}}});
  const std::vector<float> start = all(1.0F);
  std::fill_n(steps_->weights().data(), kElements, 7.0F);
  steps_->begin(kShare, start);
  EXPECT_EQ(steps_->weights()[15], 1.0F);
  EXPECT_EQ(steps_->weights()[20], 7.0F) << "the stage does not read it";
  step(0, all(3.0F));
  EXPECT_EQ(steps_->weights()[15], 1.0F) << "another stage moves it";
  EXPECT_EQ(steps_->weights()[kBlockElements], 0.5F);
  EXPECT_EQ(steps_->weights()[2 * kBlockElements], 7.0F);
  int slices = 0;
  steps_->finish(start, [&](int slice, const Payload& part) {
    ++slices;
    EXPECT_EQ(slice, 1);
    EXPECT_EQ(part.float_count(), static_cast<size_t>(kBlockElements));
    EXPECT_EQ(part.floats()[0], 1.5F) << "three micro-batches";
  });
  EXPECT_EQ(slices, 1);
  steps_->forget();
  steps_->begin(kShare, start);
  step(1, all(3.0F));
  EXPECT_EQ(steps_->weights()[kBlockElements], 0.5F) << "momentum begins at zero";
}

TEST_F(LocalStepsTest, MovesACopyByTheMeanGradientAndTheStepsOwnRate) {
  make("optimizer = sgd\nlr = 0.5\nlr-schedule = step\nlr-step = 1\nlr-gamma = 0.5\n");
  const std::vector<float> start = all(1.0F);
  steps_->begin(kShare, start);
  step(0, all(3.0F));
  EXPECT_EQ(steps_->weights()[0], 0.5F);
  step(1, all(3.0F));
  EXPECT_EQ(steps_->weights()[0], 0.25F) << "half the rate";
  const std::vector<float> pushed = change(start);
  ASSERT_EQ(std::ssize(pushed), kElements);
  EXPECT_EQ(pushed[0], 3 * 0.75F) << "micro-batches times the way";
}

// lamb's first direction is the gradient's sign, so each weight moves by the rate times the root mean
// square of the weights.
TEST_F(LocalStepsTest, LambScalesByTheNormsOfItsOwnWeights) {
  make("optimizer = lamb\nlr = 0.5\nepsilon = 1e-12\n");
  steps_->begin(kShare, all(3.0F));
  step(0, all(6.0F));
  EXPECT_NEAR(steps_->weights()[0], 3.0F - 0.5F * 3.0F, 1e-5);
  EXPECT_NEAR(steps_->weights()[kElements - 101], 3.0F - 0.5F * 3.0F, 1e-5);
  EXPECT_NEAR(steps_->weights()[kElements - 1], 0.75F * 3.0F + 0.25F * 2.0F, 1e-5)
      << "running statistics have no ratio";
  step(1, all(6.0F));
  EXPECT_NEAR(steps_->weights()[0], 1.5F - 0.5F * 1.5F, 1e-5);
}

TEST_F(LocalStepsTest, RunningStatisticsMoveLocally) {
  make("optimizer = adam\nlr = 0.5\n");
  const std::vector<float> start = all(1.0F);
  steps_->begin(kShare, start);
  step(0, all(15.0F));
  EXPECT_EQ(steps_->weights()[kElements - 1], 0.75F * 1.0F + 0.25F * 5.0F);
  EXPECT_EQ(change(start)[static_cast<size_t>(kElements - 1)], 3 * -1.0F);
}

TEST_F(LocalStepsTest, TheOptimizersStateLivesFromRoundToRoundByShare) {
  make("optimizer = momentum\nmomentum = 0.5\nlr = 1\n");
  const std::vector<float> start = all(0.0F);
  steps_->begin(kShare, start);
  step(0, all(3.0F));
  EXPECT_EQ(steps_->weights()[0], -1.0F);
  steps_->begin(kShare, start);
  EXPECT_EQ(steps_->weights()[0], 0.0F) << "weights begin anew";
  step(4, all(3.0F));
  EXPECT_EQ(steps_->weights()[0], -1.5F) << "momentum does not";
  steps_->begin({0, 2}, start);
  step(4, all(2.0F));
  EXPECT_EQ(steps_->weights()[0], -1.0F) << "another share begins at zero";
  steps_->begin(kShare, start);
  step(8, all(3.0F));
  EXPECT_EQ(steps_->weights()[0], -1.75F);
}

TEST_F(LocalStepsTest, ClipsByTheNormOfItsOwnMeanGradient) {
  make("optimizer = sgd\nlr = 1\nclip-norm = 2\n");
  const std::vector<float> start = all(0.0F);
  steps_->begin(kShare, start);
  step(0, all(3.0F));
  double squares = 0.0;
  for (int64_t i = 0; i < kElements - 100; ++i) {
    squares += std::pow(steps_->weights()[static_cast<size_t>(i)], 2);
  }
  EXPECT_NEAR(std::sqrt(squares), 2.0, 1e-4) << "of trainable weights only";
  EXPECT_EQ(steps_->weights()[kElements - 1], 0.25F) << "statistics are not clipped";
}

}  // namespace
}  // namespace pushpull::local_steps_test
