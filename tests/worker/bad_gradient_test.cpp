// Micro-batches with a loss or gradient that is not finite, which count as zeros.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "datasets/dataset.h"
#include "worker/compute/compute.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

// A model with a bad gradient or loss in its n-th micro-batches.
class SometimesBad : public Model {
 public:
  SometimesBad(Model& model, std::set<int> gradients, std::set<int> losses)
      : model_(model), gradients_(std::move(gradients)), losses_(std::move(losses)) {
    table_ = model.table();
  }
  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed) override {
    std::vector<size_t> order;
    const float loss = model_.train(
        weights, samples, gradients, [&](size_t tensor) { order.push_back(tensor); }, needed);
    if (gradients_.contains(calls_)) {
      gradients[static_cast<size_t>(table_.tensors.at(2).offset)] =
          std::numeric_limits<float>::quiet_NaN();
    }
    for (const size_t tensor : order) ready(tensor);
    return losses_.contains(calls_++) ? kInf : loss;
  }
  void evaluate(std::span<const float>, const Samples&, std::span<HeadSums>) override {}
  std::string numerics() const override { return model_.numerics(); }
  void choose(const std::string&) override {}

 private:
  Model& model_;
  const std::set<int> gradients_;
  const std::set<int> losses_;
  int calls_ = 0;
};

class BadGradientTest : public testing::Test {
 protected:
  void make(const std::string& keys) {
    job_ = parse_job_text(
        "dataset = dummy\nmodel = convnet\ninput = 1x8x8\nglobal-batch = 16\nmicro-batch = 2\n"
        "steps = 10\nslice-bytes = 4096\n" +
            keys,
        "test");
    dataset_ = open_dataset(job_);
    model_ = make_model(job_, dataset_->fields());
    const TensorTable& table = model_->table();
    weights_.resize(static_cast<size_t>(table.total));
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = 0.05F * static_cast<float>(std::sin(static_cast<double>(i)));
    }
    for (const TensorInfo& tensor : table.tensors) {
      if (tensor.rule != UpdateRule::kAverage) continue;
      for (int64_t i = 0; i < tensor.size; ++i) {
        weights_[static_cast<size_t>(tensor.offset + i)] = 0.25F + static_cast<float>(i);
      }
    }
  }
  // Returns the sum over a node, in which the micro-batches at these positions are bad.
  std::vector<float> sum(Range node, std::set<int> gradients, std::set<int> losses = {}) {
    SometimesBad model(*model_, std::move(gradients), std::move(losses));
    const SliceMap map(model.table().total, job_.slice_bytes, 1);
    Compute compute(job_, *dataset_, model, map, [] { return false; });
    std::vector<float> out(weights_.size());
    compute.begin(3, {node}, weights_);
    losses_.clear();
    std::set<int> given;
    EXPECT_TRUE(compute.node(
        [&](int slice, const Payload& part) {
          EXPECT_TRUE(given.insert(slice).second) << "each slice is passed on once";
          std::copy_n(part.floats(), part.float_count(), out.begin() + map.elements(slice).lo);
        },
        losses_));
    EXPECT_EQ(std::ssize(given), map.slices());
    bad_ = compute.take_bad();
    EXPECT_TRUE(compute.take_bad().empty());
    return out;
  }
  // Returns the gradient that a bad micro-batch counts as: zeros, and the current running
  // statistics instead of those of the batch.
  std::vector<float> neutral() const {
    std::vector<float> out(weights_.size());
    for (const TensorInfo& tensor : model_->table().tensors) {
      if (tensor.rule != UpdateRule::kAverage) continue;
      std::copy_n(weights_.begin() + tensor.offset, tensor.size, out.begin() + tensor.offset);
    }
    return out;
  }
  static std::vector<float> added(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> out(a.size());
    for (size_t i = 0; i < a.size(); ++i) out[i] = a[i] + b[i];
    return out;
  }

  Job job_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Model> model_;
  std::vector<float> weights_;
  std::vector<float> losses_;
  std::vector<wire::BadGradient> bad_;
};

TEST_F(BadGradientTest, EndsTheJobUnlessItIsSkipped) {
  for (const char* what : {"abort", "quarantine"}) {
    make("on-bad-gradient = " + std::string(what) + "\n");
    EXPECT_THROW(sum({0, 2}, {1}), Error) << what;
    EXPECT_THROW(sum({0, 2}, {}, {0}), Error) << what;
  }
}

TEST_F(BadGradientTest, CountsAsZerosAtAnyPositionOfTheSum) {
  make("on-bad-gradient = skip\n");
  std::map<int, std::vector<float>> leaves;
  for (int m = 0; m < 4; ++m) leaves[m] = sum({m, m + 1}, {});
  EXPECT_TRUE(bad_.empty());
  EXPECT_EQ(sum({0, 4}, {}), added(added(leaves[0], leaves[1]), added(leaves[2], leaves[3])));
  for (int bad = 0; bad < 4; ++bad) {
    std::map<int, std::vector<float>> with = leaves;
    with[bad] = neutral();
    EXPECT_EQ(sum({0, 4}, {bad}), added(added(with[0], with[1]), added(with[2], with[3]))) << bad;
    ASSERT_EQ(bad_.size(), 1U);
    EXPECT_EQ(bad_[0].loss(), bad);
    EXPECT_EQ(bad_[0].tensor(), 3) << "the third tensor, counted from 1";
    EXPECT_EQ(losses_[static_cast<size_t>(bad)], 0.0F);
    EXPECT_EQ(sum({0, 4}, {}, {bad}), added(added(with[0], with[1]), added(with[2], with[3])));
    EXPECT_EQ(bad_[0].tensor(), 0) << "0 means the loss";
  }
}

TEST_F(BadGradientTest, AllMicroBatchesOfAStepMayBeBad) {
  make("on-bad-gradient = skip\n");
  EXPECT_EQ(sum({0, 2}, {0}, {1}), added(neutral(), neutral()));
  EXPECT_EQ(bad_.size(), 2U);
}

TEST_F(BadGradientTest, WithoutBadGradientsSkipHasTheBitsOfAbort) {
  make("on-bad-gradient = skip\n");
  const std::vector<float> skip = sum({0, 8}, {});
  make("on-bad-gradient = abort\n");
  EXPECT_EQ(sum({0, 8}, {}), skip);
}

TEST_F(BadGradientTest, WaitsForTheWeightsOfRunningStatistics) {
  make("on-bad-gradient = skip\n");
  SometimesBad model(*model_, {0}, {});
  const SliceMap map(model.table().total, job_.slice_bytes, 1);
  Compute compute(job_, *dataset_, model, map, [] { return false; });
  std::set<size_t> asked;
  compute.begin(0, {{0, 1}}, weights_);
  compute.node([](int, const Payload&) {}, losses_, [&](size_t tensor) { asked.insert(tensor); });
  for (size_t i = 0; i < model.table().tensors.size(); ++i) {
    if (model.table().tensors[i].rule == UpdateRule::kAverage) {
      EXPECT_TRUE(asked.contains(i)) << model.table().tensors[i].name;
    }
  }
}

}  // namespace
}  // namespace pushpull
