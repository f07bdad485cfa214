// Compares the operations of a graph on CUDA with those of the CPU, in each precision: the same
// numbers, rounded to the activations' type, in all places that an operation allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/ops/activate.h"
#include "models/ops/add.h"
#include "models/ops/average_pool.h"
#include "models/ops/batch_norm.h"
#include "models/ops/convolution.h"
#include "models/ops/cross_entropy.h"
#include "models/ops/dropout.h"
#include "models/ops/elements.h"
#include "models/ops/flatten.h"
#include "models/ops/linear.h"
#include "models/ops/max_pool.h"
#include "models/ops/squared_error.h"
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
    }
  }
  const ops::MaxPoolSpec wide({{1, 1, 40, 40}, 17, 1, 0});
  expect_refusal(wide, "max pool of a window of 17, above 16, has no kernel on");
}

TEST_P(CudaOperations, NormaliseBatches) {
  for (const ops::ImageShape image : {ops::ImageShape{3, 5, 6, 7}, ops::ImageShape{4, 16, 4, 4}}) {
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
          expect_close("y", got.y, want.y, 1e-5, 1.0);
          if (!training) continue;
          expect_close("dx", got.dx[0], want.dx[0], 1e-5, 1.0);
          for (size_t i = 0; i < 4; ++i) {
            std::vector<float> dw = want.dw[i];  // statistics have no loss scale
            for (float& value : dw) value /= i < 2 ? test::kLossScale : 1.0F;
            expect_close("dw " + std::to_string(i), got.dw[i], dw, 1e-5, 0.0);
          }
        }
      }
    }
  }
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
                    .inputs = {ops::activation({c.rows, c.classes}),
                               {ops::Element::kInt, ops::Layout::kPlain, {c.rows}}},
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

TEST_P(CudaOperations, MultiplyByWeights) {
  for (const bool relu : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(std::string(relu ? "relu " : "") + (bias ? "bias " : "") +
                     (transposed ? "transposed" : ""));
        const ops::LinearShape shape{33, 48, 24, relu, bias, transposed};
        const ops::LinearSpec spec(shape);
        std::vector<std::vector<float>> w{exact(48 * 24, 2)};
        if (bias) w.push_back(exact(24, 3));
        compare({.spec = spec,
                 .inputs = {ops::activation({33, 48})},
                 .x = {exact(33 * 48, 1)},
                 .w = w,
                 .dy = exact(33 * 24, 4)},
                1e-5 + 4.0 * std::ldexp(1.0, -bits(true)), 2.0, {0});
      }
    }
  }
}

TEST_P(CudaOperations, ConvolveWithSteps) {
  for (const int64_t stride : {1, 2, 3}) {
    for (const bool bias : {false, true}) {
      for (const int64_t kernel : {1, 3, 5}) {
        SCOPED_TRACE("kernel " + std::to_string(kernel) + " stride " + std::to_string(stride));
        const ops::ConvolutionShape shape{.input = {2, 8, 9, 11},
                                          .outputs = 16,
                                          .kernel = kernel,
                                          .padding = kernel / 2,
                                          .stride = stride,
                                          .bias = bias};
        const ops::ConvolutionSpec spec(shape);
        std::vector<std::vector<float>> w{exact(16 * 8 * kernel * kernel, 2)};
        if (bias) w.push_back(exact(16, 3));
        // cuDNN writes y before the bias is added, and dw as activations
        compare({.spec = spec,
                 .inputs = {ops::native_image(shape.input)},
                 .x = {exact(shape.input.size(), 1)},
                 .w = w,
                 .dy = exact(shape.output().size(), 4)},
                1e-5 + 8.0 * std::ldexp(1.0, -bits(true)), 2.0, {0});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaOperations, testing::ValuesIn(test::kPrecisions),
                         test::precision_name);

}  // namespace
}  // namespace pushpull::cuda_operations_test
