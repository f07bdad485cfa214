// Compares the operations of a graph on CUDA with those of the CPU, in each precision: the same
// numbers, rounded to the activations' type, in all places that an operation allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/ops/convolution.h"
#include "models/ops/linear.h"
#include "models/ops/losses.h"
#include "models/ops/norms.h"
#include "models/ops/pointwise.h"
#include "models/ops/pool.h"
#include "tests/models/cuda/cuda_operations.h"
#include "tests/models/ops/operation_run.h"

namespace pushpull::cuda_operations_test {
namespace {

using test::Comparison;
using test::kExact;
using test::numbers;
using test::Outcome;

class CudaOperations : public test::OnBothBackends {};

const std::vector<int64_t>& counts() {
  static const std::vector<int64_t> all{1, 7, 1'024, 9'001};
  return all;
}

TEST_P(CudaOperations, Activate) {
  using ops::Function;
  for (const Function function :
       {Function::kRelu, Function::kTanh, Function::kGeluErf, Function::kGeluTanh}) {
    for (const int64_t count : counts()) {
      SCOPED_TRACE(std::to_string(static_cast<int>(function)) + " of " + std::to_string(count));
      const ops::ActivateSpec spec(function, {count});
      // Both backends have one source for f32. The gradient of tanh is that of the stored output; far
      // from 0 little is left of it.
      const bool is_tanh = function == Function::kTanh;
      compare({.spec = spec,
               .inputs = {spec.output()},
               .x = {exact(count, 1, is_tanh && is_short() ? 1.0F : 6.0F)},
               .dy = exact(count, 2)},
              kExact, is_tanh ? 3.0 : 1.0);
    }
  }
}

TEST_P(CudaOperations, AddTwoValues) {
  for (const int64_t count : counts()) {
    const ops::AddSpec spec(ops::activation({count}));
    compare({.spec = spec,
             .inputs = {spec.output(), spec.output()},
             .x = {exact(count, 1), exact(count, 2)},
             .wanted = 0b11,
             .dy = exact(count, 3)},
            kExact);
  }
}

TEST_P(CudaOperations, AddGradientsOfParametersInFloats) {
  const ops::ValueType type{ops::Element::kFloat, ops::Layout::kPlain, {1'025}};
  const ops::AddSpec spec(type);
  for (const bool in_place : {false, true}) {
    const Comparison c{.spec = spec,
                       .inputs = {type, type},
                       .x = {numbers(1'025, 1), numbers(1'025, 2)},
                       .in_place = in_place,
                       .is_trained = false};
    EXPECT_TRUE(test::same_bits(cuda_->run(c).y, cpu_->run(c).y));
  }
}

TEST_P(CudaOperations, DropOutTheSameElements) {
  for (const int64_t count : counts()) {
    for (const float p : {0.0F, 0.1F, 0.5F, 0.999F}) {
      const ops::DropoutSpec spec(p, {count});
      for (const bool training : {true, false}) {
        SCOPED_TRACE(std::to_string(count) + " with " + std::to_string(p));
        compare({.spec = spec,
                 .inputs = {spec.output()},
                 .x = {exact(count, 1)},
                 .training = training,
                 .key = 0xfedcba9876543210,
                 .dy = exact(count, 2)},
                kExact);
      }
    }
  }
}

TEST_P(CudaOperations, FlattenImages) {
  for (const ops::ImageShape image : {ops::ImageShape{2, 3, 5, 4}, ops::ImageShape{3, 16, 2, 2}}) {
    const ops::FlattenSpec spec(image);
    compare({.spec = spec,
             .inputs = {ops::native_image(image)},
             .x = {exact(image.size(), 1)},
             .dy = exact(image.size(), 2)},
            kExact);
  }
}

TEST_P(CudaOperations, ConvertFields) {
  for (const int64_t count : counts()) {
    const ops::ElementsSpec spec(ops::Shape{count});
    compare({.spec = spec,
             .inputs = {{ops::Element::kFloat, ops::Layout::kPlain, {count}}},
             .x = {numbers(count, 1)}},
            kExact);
  }
}

TEST_P(CudaOperations, FindSquaredErrorsOfTheFirstTargets) {
  for (const int64_t count : counts()) {
    const ops::SquaredErrorSpec spec(count);
    for (const int64_t valid : {count, (count + 1) / 2}) {
      compare({.spec = spec,
               .inputs = {ops::activation({count}), spec.output()},
               .x = {exact(count, 1), numbers(count, 2)},
               .is_head = true,
               .valid = valid,
               .scale = 0.75F},
              kExact);
    }
  }
}

TEST_P(CudaOperations, FindMeansOfChannels) {
  for (const ops::ImageShape image : {ops::ImageShape{2, 5, 7, 7}, ops::ImageShape{3, 16, 4, 4},
                                      ops::ImageShape{1, 3, 1, 1}, ops::ImageShape{2, 2, 33, 40}}) {
    const ops::AveragePoolSpec spec(image);
    std::vector<float> x = exact(image.size(), 1);
    for (float& value : x) value += 1.25F;  // so that sums do not cancel
    // the backends add in another order
    compare({.spec = spec,
             .inputs = {ops::native_image(image)},
             .x = {cuda_->rounded(x)},
             .dy = exact(image.samples * image.channels, 2)},
            1e-5);
  }
}

TEST_P(CudaOperations, FindMaximaOfWindows) {
  for (const ops::ImageShape image :
       {ops::ImageShape{2, 16, 8, 8}, ops::ImageShape{3, 5, 7, 5}, ops::ImageShape{1, 3, 17, 19}}) {
    for (const auto& [kernel, stride, padding] :
         {std::array<int64_t, 3>{2, 2, 0}, {3, 2, 1}, {3, 1, 0}, {2, 3, 1}, {5, 2, 2}}) {
      SCOPED_TRACE(std::to_string(kernel) + "/" + std::to_string(stride));
      const ops::MaxPoolSpec spec({image, kernel, stride, padding});
      const ops::ImageShape out = image_of(spec.output());
      // negative, so that padding of zeros would win
      std::vector<float> x = exact(image.size(), 1);
      for (float& value : x) value -= 2.0F;
      compare({.spec = spec,
               .inputs = {ops::native_image(image)},
               .x = {cuda_->rounded(x)},
               .dy = exact(out.size(), 2)},
              1e-6);
      for (float& value : x) value = std::floor(2.0F * value);  // many equal ones
      compare({.spec = spec,
               .inputs = {ops::native_image(image)},
               .x = {x},
               .dy = exact(out.size(), 2)},
              1e-6);
    }
  }
  const ops::MaxPoolSpec wide({{1, 1, 40, 40}, 17, 1, 0});
  expect_refusal(wide, "max pool of a window of 17, above 16, has no kernel on");
}

TEST_P(CudaOperations, NormaliseBatches) {
  for (const ops::ImageShape image :
       {ops::ImageShape{3, 5, 6, 7}, ops::ImageShape{4, 16, 4, 4}, ops::ImageShape{5, 32, 1, 1},
        ops::ImageShape{10, 16, 28, 28}}) {
    // f32 sums of thousands of values that cancel
    const double tolerance = image.size() > 10'000 ? 1e-4 : 1e-5;
    for (const bool relu : {false, true}) {
      for (const bool training : {true, false}) {
        const ops::BatchNormSpec spec({.image = image, .relu = relu});
        std::vector<std::vector<float>> w;
        for (int64_t i = 0; i < 4; ++i) w.push_back(numbers(image.channels, 2 + i));
        for (float& value : w[3]) value += 1.5F;
        Comparison c{.spec = spec,
                     .inputs = {ops::native_image(image)},
                     .x = {exact(image.size(), 1)},
                     .w = w,
                     .training = training,
                     .dy = exact(image.size(), 7),
                     .is_trained = training};
        const Outcome want = cpu_->run(c);
        for (const bool in_place : {false, true}) {
          c.in_place = in_place;
          const Outcome got = cuda_->run(c);
          expect_close("y", got.y, want.y, tolerance, 1.0);
          if (!training) continue;
          expect_close("dx", got.dx[0], want.dx[0], tolerance, 1.0);
          for (size_t i = 0; i < 4; ++i) {
            std::vector<float> dw = want.dw[i];  // statistics have no loss scale
            for (float& value : dw) value /= i < 2 ? test::kLossScale : 1.0F;
            expect_close("dw " + std::to_string(i), got.dw[i], dw, tolerance, 0.0);
          }
        }
      }
    }
  }
}

std::vector<ops::ValueType> inputs_of(int64_t rows, int64_t classes) {
  return {ops::activation({rows, classes}), {ops::Element::kInt, ops::Layout::kPlain, {rows}}};
}

struct Heads {
  int64_t rows;
  int64_t classes;
  ops::CrossEntropyOptions options;
};

std::vector<float> class_weights(int64_t classes) {
  std::vector<float> out = numbers(classes, 5);
  for (float& value : out) value += 1.5F;
  return out;
}

TEST_P(CudaOperations, FindLossesOfScores) {
  const std::vector<Heads> all{{1, 1, {}},
                               {5, 10, {}},
                               {9, 256, {}},
                               {3, 1'031, {}},
                               {3, 2'048, {}},
                               {6, 11, {-1, 0.0F, {}}},
                               {6, 11, {{}, 0.1F, {}}},
                               {6, 16, {{}, 0.0F, class_weights(16)}},
                               {6, 11, {3, 0.2F, class_weights(11)}},
                               {5, 1'600, {-1, 0.2F, class_weights(1'600)}}};
  for (const Heads& c : all) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.classes));
    std::vector<int32_t> labels;
    for (int64_t n = 0; n < c.rows; ++n)
      labels.push_back(static_cast<int32_t>(n * 7'919 % c.classes));
    if (c.options.ignored) labels.at(2) = *c.options.ignored;
    const ops::CrossEntropySpec spec({c.rows, c.classes}, c.options);
    for (const bool training : {true, false}) {
      Comparison of{.spec = spec,
                    .inputs = inputs_of(c.rows, c.classes),
                    .x = {exact(c.rows * c.classes, 1, 9.0F), test::as_words(labels)},
                    .training = training,
                    .is_head = true,
                    .valid = c.rows,
                    .scale = 0.25F};
      if (training) {
        compare(of, 4e-6);
        continue;
      }
      of.valid = (c.rows + 1) / 2;
      of.wanted = 0;
      of.is_trained = false;
      const Outcome want = cpu_->run(of);
      const Outcome got = cuda_->run(of);
      expect_close("losses", got.y, want.y, 4e-6, 0.0);
      EXPECT_EQ(got.predictions, want.predictions);
    }
  }
}

TEST_P(CudaOperations, FindLossesOfExtremeScores) {
  const float large = cuda_->rounded({1e4F})[0];
  const float huge = GetParam() == ops::Precision::kFp16 ? 6e4F : 1e30F;
  const ops::CrossEntropySpec spec({3, 3}, {});
  const Outcome got =
      cuda_->run({.spec = spec,
                  .inputs = inputs_of(3, 3),
                  .x = {{7.0F, -200.0F, -300.0F, large, -large, 0.0F, huge, huge, -huge},
                        test::as_words({0, 1, 0})},
                  .is_head = true,
                  .valid = 3});
  EXPECT_EQ(got.y[0], 0.0F);
  EXPECT_FLOAT_EQ(got.y[1], 2.0F * large);
  EXPECT_FLOAT_EQ(got.y[2], std::log(2.0F));
  std::vector<float> gradient{0.0F, 0.0F, 0.0F, 1.0F, -1.0F, 0.0F, -0.5F, 0.5F, 0.0F};
  for (float& value : gradient) value *= test::kLossScale;
  EXPECT_EQ(got.dx[0], gradient);
}

TEST_P(CudaOperations, FindLossesOfTheFirstScoresOnly) {
  const ops::CrossEntropySpec spec({3, 2}, {});
  for (const bool training : {true, false}) {
    const Outcome got =
        cuda_->run({.spec = spec,
                    .inputs = inputs_of(3, 2),
                    .x = {{0.0F, 0.0F, 1.0F, 3.0F, NAN, NAN}, test::as_words({0, 1, -5})},
                    .wanted = 0,
                    .training = training,
                    .is_head = true,
                    .valid = 2,
                    .is_trained = false});
    EXPECT_FLOAT_EQ(got.y[0], std::log(2.0F));
    EXPECT_NEAR(got.y[1], std::log1p(std::exp(-2.0F)), 1e-6F);
    EXPECT_TRUE(std::isnan(got.y[2])) << "not written";
    EXPECT_THAT(got.predictions, testing::ElementsAre(0, 1, 0));  // zeroed memory
  }
}

TEST_P(CudaOperations, PredictTheFirstOfTheLargestScores) {
  for (const int64_t classes : {4, 33, 1'100}) {
    constexpr int64_t kRows = 9;
    std::vector<float> x = numbers(kRows * classes, 1);
    for (float& value : x) value = std::floor(4.0F * value);
    const ops::CrossEntropySpec spec({kRows, classes}, {});
    const Comparison c{.spec = spec,
                       .inputs = inputs_of(kRows, classes),
                       .x = {x, test::as_words(std::vector<int32_t>(kRows, 0))},
                       .wanted = 0,
                       .training = false,
                       .is_head = true,
                       .valid = kRows,
                       .is_trained = false};
    EXPECT_EQ(cuda_->run(c).predictions, cpu_->run(c).predictions);
  }
}

class CudaProducts : public CudaOperations {
 protected:
  // Products are rounded when the library writes them, and again after our kernel adds a bias.
  void multiply(const ops::LinearShape& shape) const {
    const auto& [n, k, m, relu, bias, transposed] = shape;
    SCOPED_TRACE(std::to_string(n) + "x" + std::to_string(k) + "x" + std::to_string(m) +
                 (relu ? " relu" : "") + (bias ? " bias" : "") + (transposed ? " transposed" : ""));
    const ops::LinearSpec spec(shape);
    std::vector<std::vector<float>> w{exact(m * k, 2)};
    if (bias) w.push_back(exact(m, 3));
    compare({.spec = spec,
             .inputs = {ops::activation({n, k})},
             .x = {exact(n * k, 1)},
             .w = w,
             .dy = exact(n * m, 4)},
            1e-5 + 4.0 * std::ldexp(1.0, -bits(true)), 2.0, {0});
  }

  // cuDNN writes y before the bias is added, and dw as activations.
  void convolve(const ops::ConvolutionShape& shape) const {
    SCOPED_TRACE("kernel " + std::to_string(shape.kernel) + " stride " +
                 std::to_string(shape.stride) + " channels " +
                 std::to_string(shape.input.channels));
    const ops::ConvolutionSpec spec(shape);
    const int64_t taps = shape.input.channels * shape.kernel * shape.kernel;
    std::vector<std::vector<float>> w{exact(shape.outputs * taps, 2)};
    if (shape.bias) w.push_back(exact(shape.outputs, 3));
    ops::ValueType input = ops::native_image(shape.input);
    input.layout = shape.input_layout;
    compare({.spec = spec,
             .inputs = {input},
             .x = {exact(shape.input.size(), 1)},
             .w = w,
             .wanted = shape.input_gradient ? 1U : 0U,
             .dy = exact(shape.output().size(), 4)},
            1e-5 + 8.0 * std::ldexp(1.0, -bits(true)), 2.0, {0});
  }
};

TEST_P(CudaProducts, MultiplyByWeights) {
  for (const bool relu : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const bool transposed : {false, true}) {
        multiply({33, 48, 24, relu, bias, transposed});
      }
    }
    // rows that start at unaligned addresses, and sums of many products
    for (const auto& [n, k, m] :
         {std::array<int64_t, 3>{1, 1, 1}, {7, 33, 10}, {100, 196, 17}, {33, 700, 130}}) {
      multiply({n, k, m, relu});
    }
  }
}

TEST_P(CudaProducts, ConvolveWithSteps) {
  for (const int64_t stride : {1, 2, 3}) {
    for (const bool bias : {false, true}) {
      for (const int64_t kernel : {1, 3, 5}) {
        convolve({.input = {2, 8, 9, 11},
                  .outputs = 16,
                  .kernel = kernel,
                  .padding = kernel / 2,
                  .stride = stride,
                  .bias = bias});
      }
    }
  }
}

TEST_P(CudaProducts, ConvolveAnyNumberOfChannels) {
  convolve({.input = {2, 5, 6, 5}, .outputs = 11, .kernel = 3, .padding = 1});
  convolve({.input = {2, 19, 6, 5}, .outputs = 33, .kernel = 5, .padding = 2});
  convolve({.input = {2, 16, 2, 2}, .outputs = 32, .kernel = 5, .padding = 2});
}

TEST_P(CudaProducts, ConvolvePlainImages) {
  for (const int64_t channels : {1, 2, 3, 4, 5}) {
    convolve({.input = {4, channels, 9, 7},
              .outputs = 16,
              .kernel = 5,
              .padding = 2,
              .input_layout = ops::Layout::kPlain,
              .input_gradient = false});
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaOperations, testing::ValuesIn(test::kPrecisions),
                         test::precision_name);
INSTANTIATE_TEST_SUITE_P(Cuda, CudaProducts, testing::ValuesIn(test::kPrecisions),
                         test::precision_name);

}  // namespace
}  // namespace pushpull::cuda_operations_test
