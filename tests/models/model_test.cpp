// Models: their tables, the contracts of `train` and `evaluate`, and gradients against differences
// of a loss that plain loops in double compute.
#include "models/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "common/base/error.h"
#include "models/ops/cpu/numerics.h"
#include "tests/common/thrown.h"
#include "tests/models/backend_case.h"
#include "tests/models/fixture.h"
#include "tests/models/reference.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

class ModelOn : public OnBackend {};

const TensorInfo& tensor(const Model& model, const std::string& name) {
  for (const TensorInfo& info : model.table().tensors) {
    if (info.name == name) return info;
  }
  throw std::runtime_error("no tensor " + name);
}

template <class Vector>
auto part(const Model& model, Vector& flat, const std::string& name) {
  const TensorInfo& info = tensor(model, name);
  return std::span(flat).subspan(static_cast<size_t>(info.offset), static_cast<size_t>(info.size));
}

std::string error_of(const Case& c) {
  return thrown(ErrorCode::kUsage, [&] { c.make(); });
}

TEST(Model, MlpListsItsTensorsLikePyTorch) {
  const auto model = Case{.input = {3, 4, 5}, .classes = 7, .hidden = {30, 20}}.make();
  std::vector<std::string> names;
  for (const TensorInfo& info : model->table().tensors) names.push_back(info.name);
  EXPECT_THAT(names, testing::ElementsAre("layers.0.weight", "layers.0.bias", "layers.1.weight",
                                          "layers.1.bias", "layers.2.weight", "layers.2.bias"));
  EXPECT_THAT(tensor(*model, "layers.0.weight").shape, testing::ElementsAre(30, 60));
  EXPECT_THAT(tensor(*model, "layers.1.weight").shape, testing::ElementsAre(20, 30));
  EXPECT_THAT(tensor(*model, "layers.2.weight").shape, testing::ElementsAre(7, 20));
  EXPECT_THAT(tensor(*model, "layers.2.bias").shape, testing::ElementsAre(7));
  EXPECT_EQ(model->table().total, 30 * 60 + 30 + 20 * 30 + 20 + 7 * 20 + 7);
  for (const TensorInfo& info : model->table().tensors) {
    EXPECT_EQ(info.rule, UpdateRule::kOptimizer);
    EXPECT_EQ(info.init, InitKind::kUniform);
  }
  EXPECT_FLOAT_EQ(tensor(*model, "layers.1.weight").value, 1.0F / std::sqrt(30.0F));
  EXPECT_FLOAT_EQ(tensor(*model, "layers.1.bias").value, 1.0F / std::sqrt(30.0F));
}

TEST(Model, ConvnetListsItsTensorsLikePyTorch) {
  const auto model = Case{.model = "convnet", .input = {3, 13, 11}, .classes = 7}.make();
  std::vector<std::string> names;
  for (const TensorInfo& info : model->table().tensors) names.push_back(info.name);
  EXPECT_THAT(names, testing::ElementsAre(
                         "layer1.0.weight", "layer1.0.bias", "layer1.1.weight", "layer1.1.bias",
                         "layer1.1.running_mean", "layer1.1.running_var", "layer2.0.weight",
                         "layer2.0.bias", "layer2.1.weight", "layer2.1.bias",
                         "layer2.1.running_mean", "layer2.1.running_var", "fc.weight", "fc.bias"));
  EXPECT_THAT(tensor(*model, "layer1.0.weight").shape, testing::ElementsAre(16, 3, 5, 5));
  EXPECT_THAT(tensor(*model, "layer2.0.weight").shape, testing::ElementsAre(32, 16, 5, 5));
  EXPECT_THAT(tensor(*model, "fc.weight").shape, testing::ElementsAre(7, 32 * 3 * 2));
  EXPECT_FLOAT_EQ(tensor(*model, "layer1.0.weight").value, 1.0F / std::sqrt(75.0F));
  EXPECT_FLOAT_EQ(tensor(*model, "layer2.0.bias").value, 1.0F / std::sqrt(400.0F));
  EXPECT_EQ(tensor(*model, "layer2.1.weight").value, 1.0F);
  EXPECT_EQ(tensor(*model, "layer2.1.bias").value, 0.0F);
  for (const auto& [name, value] :
       {std::pair{"layer1.1.running_mean", 0.0F}, std::pair{"layer1.1.running_var", 1.0F}}) {
    const TensorInfo& info = tensor(*model, name);
    EXPECT_EQ(info.rule, UpdateRule::kAverage);
    EXPECT_EQ(info.init, InitKind::kConstant);
    EXPECT_EQ(info.value, value);
    EXPECT_EQ(info.average_momentum, 0.1F);
  }
}

TEST(Model, InvalidModelIsRefusedWithOneLine) {
  EXPECT_THAT(error_of({.model = "resnet"}), HasSubstr("'resnet'"));
  EXPECT_THAT(error_of({.model = "convnet", .input = {784, 1, 1}}),
              testing::AllOf(HasSubstr("convnet"), HasSubstr("1x1"), HasSubstr("mlp")));
  EXPECT_THAT(error_of({.model = "convnet", .input = {1, 28, 3}}), HasSubstr("28x3"));
  EXPECT_THAT(error_of({.micro_batch = 0}), HasSubstr("micro-batch"));
  EXPECT_THAT(error_of({.threads = 0}), HasSubstr("threads"));
  EXPECT_THAT(error_of({.classes = 0}), HasSubstr("classes"));
  EXPECT_THAT(error_of({.hidden = {10, -1}}), HasSubstr("hidden"));
  EXPECT_THAT(error_of({.input = {1, 0, 8}}), HasSubstr("height"));
  EXPECT_THAT(error_of({.hidden = {1 << 20, 1 << 20}}), HasSubstr("layers.1's weight"));
  EXPECT_THAT(error_of({.model = "convnet", .input = {1, 2000, 2000}, .micro_batch = 50}),
              HasSubstr("layer1.0's output"));
  EXPECT_THAT(error_of({.model = "convnet", .input = {1, 5000, 5000}, .micro_batch = 100}),
              HasSubstr("pixels's input"));
  EXPECT_THAT(error_of({.input = {INT32_MAX, INT32_MAX, 8}}), HasSubstr("input"));
}

// Returns the loss of a model, computed in plain loops in double.
double reference_loss(const Model& model, const Case& c, const reference::Values& flat,
                      const Inputs& inputs) {
  using reference::Values;
  const auto get = [&](const std::string& name) {
    const auto values = part(model, flat, name);
    return Values(values.begin(), values.end());
  };
  Values x(inputs.images.begin(), inputs.images.end());
  ops::ImageShape image{c.micro_batch, c.input.channels, c.input.height, c.input.width};
  if (c.model == "convnet") {
    for (const auto& [name, channels] : {std::pair{"layer1", 16}, std::pair{"layer2", 32}}) {
      const std::string layer = name;
      const ops::ConvolutionShape convolution{
          .input = image, .outputs = channels, .kernel = 5, .padding = 2};
      x = reference::convolution(convolution, x, get(layer + ".0.weight"), get(layer + ".0.bias"));
      const ops::BatchNormShape norm{.image = convolution.output(), .relu = true};
      x = reference::batch_norm(norm, x, get(layer + ".1.weight"), get(layer + ".1.bias")).y;
      const ops::MaxPoolShape pool{norm.image};
      x = reference::max_pool(pool, x);
      image = pool.output();
    }
    x = reference::linear({c.micro_batch, image.size() / c.micro_batch, c.classes, false}, x,
                          get("fc.weight"), get("fc.bias"));
  } else {
    int64_t width = c.input.size();
    for (size_t i = 0; i <= c.hidden.size(); ++i) {
      const bool last = i == c.hidden.size();
      const int64_t outputs = last ? c.classes : c.hidden[i];
      const std::string layer = "layers." + std::to_string(i);
      x = reference::linear({c.micro_batch, width, outputs, !last}, x, get(layer + ".weight"),
                            get(layer + ".bias"));
      width = outputs;
    }
  }
  double sum = 0.0;
  for (const double loss : reference::cross_entropy(c.classes, x, inputs.labels)) sum += loss;
  return sum / static_cast<double>(c.micro_batch);
}

// Central differences in double: truncation and rounding stay below 1e-7 at this step, unless the
// step crosses a tie of a ReLU or a window, which the images of these seeds avoid. The rest of the
// tolerance is for f32: 1e-4 of the tensor's largest gradient. If activations are rounded, one of
// these few samples may cross a ReLU or win another window, which costs some of the tolerance in
// any precision. A bias before batch normalization has slope zero: its gradients are rounding
// errors and are compared relative to those of the weights.
TEST_P(ModelOn, GradientsAreTheSlopeOfTheLoss) {
  for (const Case& c :
       {Case{.micro_batch = 4, .hidden = {12, 9}},
        Case{.input = {2, 3, 3}, .classes = 4, .micro_batch = 3, .hidden = {}},
        Case{.model = "convnet", .input = {1, 8, 8}, .micro_batch = 3},
        Case{.model = "convnet", .input = {3, 5, 7}, .classes = 3, .micro_batch = 2}}) {
    SCOPED_TRACE(describe(c));
    const auto model = on(c).make();
    const std::vector<float> weights = initial_weights(model->table(), 3);
    const Inputs inputs(c, 5);
    const Result got = train(*model, weights, inputs);
    reference::Values flat(weights.begin(), weights.end());
    EXPECT_NEAR(got.loss, reference_loss(*model, c, flat, inputs), tolerance(1e-5));
    for (const TensorInfo& info : model->table().tensors) {
      if (info.rule != UpdateRule::kOptimizer) continue;
      const auto gradient = part(*model, got.gradients, info.name);
      const std::string_view name = info.name;
      const bool has_no_slope = c.model == "convnet" && name.ends_with(".0.bias");
      double largest = 0.0;
      for (const float g : has_no_slope
                               ? part(*model, got.gradients,
                                      std::string(name.substr(0, name.size() - 4)) + "weight")
                               : gradient) {
        largest = std::max(largest, std::fabs(double{g}));
      }
      const double share = tolerance(1e-4) + (GetParam().is_short() ? 0.08 : 0.0);
      for (int64_t k = 0; k < std::min<int64_t>(info.size, 6); ++k) {
        const int64_t i = k * 7919 % info.size;
        double& weight = flat[static_cast<size_t>(info.offset + i)];
        const double saved = weight;
        constexpr double kStep = 1e-6;
        weight = saved + kStep;
        const double up = reference_loss(*model, c, flat, inputs);
        weight = saved - kStep;
        const double down = reference_loss(*model, c, flat, inputs);
        weight = saved;
        EXPECT_NEAR(gradient[static_cast<size_t>(i)], (up - down) / (2.0 * kStep),
                    1e-6 + share * largest)
            << info.name << "[" << i << "]";
      }
    }
  }
}

TEST_P(ModelOn, ReportsEachFinalGradientOnceAndTheLastLayerFirst) {
  for (const Case& c : on(all_cases())) {
    SCOPED_TRACE(describe(c));
    const auto model = c.make();
    const std::vector<float> weights = initial_weights(model->table(), 1);
    const Inputs inputs(c);
    std::vector<float> gradients(weights.size(), std::numeric_limits<float>::quiet_NaN());
    std::vector<float> when_ready(weights.size(), std::numeric_limits<float>::quiet_NaN());
    std::vector<size_t> order;
    model->train(weights, inputs.view(), gradients, [&](size_t t) {
      order.push_back(t);
      const TensorInfo& info = model->table().tensors[t];
      std::copy_n(gradients.begin() + info.offset, info.size, when_ready.begin() + info.offset);
    });
    EXPECT_EQ(when_ready, gradients);
    EXPECT_THAT(gradients, testing::Each(testing::Truly([](float g) { return std::isfinite(g); })));
    std::vector<size_t> reversed;
    for (size_t t = model->table().tensors.size(); t-- > 0;) reversed.push_back(t);
    EXPECT_EQ(order, reversed);
  }
}

// Weights are NaN until they are requested, and no bit changes: nothing reads them earlier.
TEST(Model, BoundsOfGradientsHold) {
  const Case c{.input = {1, 8, 8}, .classes = 5, .micro_batch = 3, .hidden = {64, 48}};
  const auto model = c.make();
  std::vector<float> weights = initial_weights(model->table(), 3);
  const Inputs inputs(c, 4);
  std::vector<float> gradients(weights.size());
  const auto bounds = [&] {
    std::vector<double> out(model->table().tensors.size());
    model->train(weights, inputs.view(), gradients,
                 [&](size_t tensor) { out[tensor] = model->gradient_bound(tensor); });
    return out;
  };
  const std::vector<double> found = bounds();
  for (size_t t = 0; t < found.size(); ++t) {
    const TensorInfo& info = model->table().tensors[t];
    for (int64_t i = info.offset; i < info.offset + info.size; ++i) {
      EXPECT_LE(std::abs(gradients[static_cast<size_t>(i)]), found[t]) << info.name;
    }
    EXPECT_EQ(std::isfinite(found[t]), t < 4) << "the last layer is too narrow: " << info.name;
  }
  weights.back() = std::numeric_limits<float>::quiet_NaN();
  for (const double bound : bounds()) EXPECT_FALSE(std::isfinite(bound));
}

TEST_P(ModelOn, RequestsEachTensorBeforeForwardReadsItAndTheFirstLayerFirst) {
  for (const Case& c : on(all_cases())) {
    SCOPED_TRACE(describe(c));
    const auto model = c.make();
    const std::vector<float> weights = initial_weights(model->table(), 1);
    const Inputs inputs(c);
    std::vector<float> want(weights.size());
    const auto ready = [](size_t) {};
    const float loss = model->train(weights, inputs.view(), want, ready);

    std::vector<float> arriving(weights.size(), std::numeric_limits<float>::quiet_NaN());
    std::vector<float> got(weights.size());
    std::vector<size_t> order;
    const auto needed = [&](size_t t) {
      order.push_back(t);
      const TensorInfo& info = model->table().tensors[t];
      std::copy_n(weights.begin() + info.offset, info.size, arriving.begin() + info.offset);
    };
    EXPECT_EQ(model->train(arriving, inputs.view(), got, ready, needed), loss);
    EXPECT_EQ(got, want);
    std::vector<size_t> all(model->table().tensors.size());
    std::iota(all.begin(), all.end(), size_t{0});
    EXPECT_EQ(order, all);
  }
}

// A kernel that copies the image gives BatchNorm the statistics of the image: half zeros and half
// ones, n = 2 * 4 * 4, have mean 1/2 and unbiased variance 1/4 * n / (n - 1).
TEST_P(ModelOn, BatchNormReportsMeanAndUnbiasedVarianceOfTheMicroBatch) {
  const Case c = on(Case{.model = "convnet", .input = {1, 4, 4}, .micro_batch = 2});
  const auto model = c.make();
  std::vector<float> weights = initial_weights(model->table(), 1);
  std::ranges::fill(part(*model, weights, "layer1.0.weight"), 0.0F);
  std::ranges::fill(part(*model, weights, "layer1.0.bias"), 3.0F);
  part(*model, weights, "layer1.0.weight")[1 * 25 + 12] = 2.0F;  // channel 1: 2 image + 3
  Inputs inputs(c);
  for (size_t i = 0; i < inputs.images.size(); ++i) inputs.images[i] = i % 2 == 0 ? 0.0F : 1.0F;
  const Result result = train(*model, weights, inputs);
  const auto mean = part(*model, result.gradients, "layer1.1.running_mean");
  const auto variance = part(*model, result.gradients, "layer1.1.running_var");
  EXPECT_EQ(mean[0], 3.0F);
  EXPECT_EQ(variance[0], 0.0F);
  EXPECT_FLOAT_EQ(mean[1], 2.0F * 0.5F + 3.0F);
  EXPECT_FLOAT_EQ(variance[1], 4.0F * 0.25F * 32.0F / 31.0F);
}

TEST_P(ModelOn, EvaluateNormalizesWithTheRunningStatistics) {
  const Case c = on(Case{.model = "convnet", .input = {1, 8, 8}, .micro_batch = 4});
  const auto model = c.make();
  std::vector<float> weights = initial_weights(model->table(), 1);
  const Inputs inputs(c);
  const Result result = train(*model, weights, inputs);
  // with the batch's own (biased) statistics as running ones, both modes use the same numbers
  for (const auto& [layer, count] : {std::pair{"layer1.1", 256.0F}, std::pair{"layer2.1", 64.0F}}) {
    const std::string name = layer;
    std::ranges::copy(part(*model, result.gradients, name + ".running_mean"),
                      part(*model, weights, name + ".running_mean").begin());
    const auto variance = part(*model, result.gradients, name + ".running_var");
    const auto running = part(*model, weights, name + ".running_var");
    for (size_t i = 0; i < running.size(); ++i) running[i] = variance[i] * (count - 1.0F) / count;
  }
  const HeadSums sums = evaluate(*model, weights, inputs, 4);
  EXPECT_NEAR(sums.loss / 4.0, result.loss, tolerance(1e-5));
}

TEST_P(ModelOn, EqualLogitsPredictClassZero) {
  const Case c = on(Case{});
  const auto model = c.make();
  const std::vector<float> weights(static_cast<size_t>(model->table().total), 0.0F);
  Inputs inputs(c);
  inputs.labels = {0, 1, 0, 2, 3, 0, 9, 0};
  const HeadSums sums = evaluate(*model, weights, inputs, 7);
  EXPECT_EQ(sums.metric, 3.0);
  EXPECT_NEAR(sums.loss, 7.0 * std::log(10.0), 1e-5);
}

// The bits of a sample's loss depend only on the sample and its position, not on the rest of the
// chunk, even with NaN and invalid labels there.
TEST_P(ModelOn, EvaluateDoesNotDependOnOtherSamples) {
  for (const Case& c : on(all_cases())) {
    SCOPED_TRACE(describe(c));
    const auto model = c.make();
    const std::vector<float> weights = initial_weights(model->table(), 1);
    const Inputs inputs(c);
    const auto sample = static_cast<size_t>(c.input.size());
    double before = 0.0;
    double correct = 0.0;
    for (int64_t valid = 1; valid <= c.micro_batch; ++valid) {
      // losses of the first `valid` samples, followed by different rubbish each time
      Inputs padded(c, 1000 + static_cast<uint64_t>(valid));
      if (valid % 2 == 0) {
        std::ranges::fill(padded.images, std::numeric_limits<float>::quiet_NaN());
        std::ranges::fill(padded.labels, -5);
      }
      const auto n = static_cast<size_t>(valid);
      std::copy_n(inputs.images.begin(), n * sample, padded.images.begin());
      std::copy_n(inputs.labels.begin(), n, padded.labels.begin());
      const HeadSums sums = evaluate(*model, weights, padded, valid);
      const HeadSums whole = evaluate(*model, weights, inputs, valid);
      ASSERT_EQ(sums.loss, whole.loss) << valid;
      ASSERT_EQ(sums.metric, whole.metric) << valid;
      ASSERT_EQ(sums.counted, valid);
      ASSERT_GT(sums.loss, before);
      ASSERT_GE(sums.metric, correct);
      before = sums.loss;
      correct = sums.metric;
    }
  }
}

TEST_P(ModelOn, EvaluateOfNoSamplesIsZero) {
  const Case c = on(Case{});
  const auto model = c.make();
  const std::vector<float> weights = initial_weights(model->table(), 1);
  const Inputs inputs(c);
  const HeadSums sums = evaluate(*model, weights, inputs, 0);
  EXPECT_EQ(sums, HeadSums());
}

TEST_P(ModelOn, StepsAlongTheGradientLowerTheLoss) {
  for (const Case& c : on(all_cases())) {
    SCOPED_TRACE(describe(c));
    const auto model = c.make();
    std::vector<float> weights = initial_weights(model->table(), 1);
    const Inputs inputs(c);
    const float first = train(*model, weights, inputs).loss;
    for (int step = 0; step < 30; ++step) {
      const Result result = train(*model, weights, inputs);
      for (const TensorInfo& info : model->table().tensors) {
        if (info.rule != UpdateRule::kOptimizer) continue;
        const auto w = part(*model, weights, info.name);
        const auto g = part(*model, result.gradients, info.name);
        for (size_t i = 0; i < w.size(); ++i) w[i] -= 0.05F * g[i];
      }
    }
    EXPECT_LT(train(*model, weights, inputs).loss, 0.95F * first);
  }
}

TEST_P(ModelOn, InvalidSpansAndLabelsAreRefused) {
  const Case c = on(Case{});
  const auto model = c.make();
  const std::vector<float> weights = initial_weights(model->table(), 1);
  std::vector<float> gradients(weights.size());
  Inputs inputs(c);
  const GradientReady ready = [](size_t) {};
  EXPECT_THROW(model->train(std::span(weights).first(5), inputs.view(), gradients, ready), Error);
  EXPECT_THROW(model->train(weights, inputs.view(), std::span(gradients).first(5), ready), Error);
  EXPECT_THROW(evaluate(*model, weights, inputs, c.micro_batch + 1), Error);
  inputs.labels[3] = static_cast<int32_t>(c.classes);
  EXPECT_THROW(model->train(weights, inputs.view(), gradients, ready), Error);
}

TEST(Model, HasHalfTheArenaInBf16) {
  if (!ops::cpu_has_bf16()) GTEST_SKIP() << "this processor has neither AVX512_BF16 nor AMX-BF16";
  Case c{.input = {1, 28, 28}, .micro_batch = 64, .hidden = {256, 256}};
  const auto wide = static_cast<double>(c.make()->arena_bytes());
  c.backend = [](int threads) { return ops::make_cpu_backend(threads, ops::Precision::kBf16); };
  const auto narrow = static_cast<double>(c.make()->arena_bytes());
  // the field's floats as bf16 are a value of their own
  const double images = 64 * 28 * 28 * 2;
  EXPECT_NEAR(narrow - images, wide / 2.0, 0.02 * wide);
}

TEST(Model, BackendFollowsTheKeysOfTheJob) {
  Job job;
  job.threads = 3;
  job.loss_scale = 64;
  const device::DeviceName device{device::DeviceName::kCuda, 2};
  ops::BackendOptions options = backend_options(job, device);
  EXPECT_EQ(options.device.index, 2);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.precision, ops::Precision::kFp32);
  EXPECT_EQ(options.loss_scale, 1.0F) << "only fp16 has a loss scale";
  EXPECT_FALSE(options.measure) << "unless the job asks, no time decides about bits";
  job.precision = "fp16";
  job.timed_algorithms = true;
  options = backend_options(job, device);
  EXPECT_EQ(options.precision, ops::Precision::kFp16);
  EXPECT_EQ(options.loss_scale, 64.0F);
  EXPECT_TRUE(options.measure);
}

TEST(Model, FingerprintNamesInstructionSetAndLibraries) {
  EXPECT_THAT(numerics_fingerprint(),
              testing::MatchesRegex("cpu [a-z0-9_]+ oneDNN [0-9.]+ glibc [0-9.]+"
                                    "( cache [0-9K/]+)?"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ModelOn, testing::ValuesIn(all_backends()), case_name);

}  // namespace
}  // namespace pushpull
