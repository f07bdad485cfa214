#include "models/ops/convolution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "tests/common/thrown.h"
#include "tests/models/ops/blocks.h"
#include "tests/models/ops/differences.h"
#include "tests/models/ops/same_bits.h"
#include "tests/models/reference.h"

namespace pushpull {
namespace {

using ops::ConvolutionShape;
using ops::Layout;
using test::OperationRun;

ops::ValueType input_of(const ConvolutionShape& shape) {
  ops::ValueType type = ops::native_image(shape.input);
  type.layout = shape.input_layout;
  return type;
}

int64_t weights_of(const ConvolutionShape& shape) {
  return shape.outputs * shape.input.channels * shape.kernel * shape.kernel;
}

void fill_convolution(OperationRun& op, const ConvolutionShape& shape, int64_t seed,
                      ops::Precision precision = ops::Precision::kFp32) {
  const std::vector<float> x = test::numbers(shape.input.size(), seed, precision);
  op.set_input(0, shape.input_layout == Layout::kPlain ? x : test::in_blocks(shape.input, x));
  op.set_param(0, test::numbers(weights_of(shape), seed + 1, precision));
  if (shape.bias) op.set_param(1, test::numbers(shape.outputs, seed + 2, precision));
}

// f32 sums of up to 1568 products: the bound is in units of the largest result.
constexpr double kTolerance = 5e-6;

void expect_agreement_with_double(const ConvolutionShape& shape, int threads,
                                  ops::Precision precision) {
  const auto values = [precision](int64_t count, int64_t seed) {
    return test::doubles(test::numbers(count, seed, precision));
  };
  const double tolerance = test::tolerance_in(precision, kTolerance, 1);
  const ops::ConvolutionSpec spec(shape);
  OperationRun op(threads, spec, {input_of(shape)}, shape.input_gradient ? 0U : 1U, precision);
  fill_convolution(op, shape, 1, precision);
  const test::Doubles x = values(shape.input.size(), 1);
  const test::Doubles w = values(weights_of(shape), 2);
  test::Doubles b(static_cast<size_t>(shape.outputs));
  if (shape.bias) b = values(shape.outputs, 3);
  const ops::ImageShape output = shape.output();
  const std::vector<float> dy = test::numbers(output.size(), 4, precision);
  test::expect_close("y", test::from_blocks(output, op.forward()),
                     reference::convolution(shape, x, w, b), tolerance);
  op.backward(test::in_blocks(output, dy));
  const reference::Gradients g = reference::convolution_backward(shape, x, w, test::doubles(dy));
  if (shape.input_gradient) {
    test::expect_close("dx", test::from_blocks(shape.input, op.dx(0)), g.dx, tolerance);
  }
  test::expect_close("dw", op.dw(0), g.dw, kTolerance);
  if (shape.bias) test::expect_close("db", op.dw(1), g.db, kTolerance);
}

std::vector<ConvolutionShape> convolution_shapes() {
  std::vector<ConvolutionShape> out;
  for (const int64_t stride : {1, 2, 3}) {
    for (const bool bias : {false, true}) {
      for (const auto& [kernel, padding] : {std::pair{1, 0}, {3, 1}, {2, 0}, {7, 3}}) {
        ConvolutionShape shape{.input = {2, 16, 8, 7},
                               .outputs = 32,
                               .kernel = kernel,
                               .padding = padding,
                               .stride = stride,
                               .bias = bias};
        out.push_back(shape);
        shape.input = {3, 5, 7, 9};
        shape.outputs = 7;
        out.push_back(shape);
        shape.input_layout = Layout::kPlain;
        shape.input_gradient = false;
        out.push_back(shape);
        shape.input.channels = 1;
        shape.outputs = 16;
        out.push_back(shape);
      }
    }
  }
  for (const int64_t channels : {1, 2, 3, 4, 5}) {  // oneDNN reads up to 3 channels in place
    out.push_back({.input = {4, channels, 9, 7},
                   .outputs = 16,
                   .kernel = 5,
                   .padding = 2,
                   .input_layout = Layout::kPlain,
                   .input_gradient = false});
  }
  out.push_back({.input = {2, 16, 2, 2}, .outputs = 32, .kernel = 5, .padding = 2});
  out.push_back({.input = {2, 19, 6, 5}, .outputs = 33, .kernel = 5, .padding = 2});
  return out;
}

TEST(ConvolutionOperation, AgreesWithALoopInDouble) {
  for (const ops::Precision precision : test::cpu_precisions()) {
    for (const int threads : {1, 2}) {
      for (const ConvolutionShape& shape : convolution_shapes()) {
        SCOPED_TRACE(testing::Message()
                     << to_string(precision) << " kernel " << shape.kernel << " stride "
                     << shape.stride << " channels " << shape.input.channels);
        expect_agreement_with_double(shape, threads, precision);
      }
    }
  }
}

TEST(ConvolutionOperation, TheLoopHasTheGradientOfItsOutput) {
  const ConvolutionShape shape{
      .input = {2, 2, 5, 4}, .outputs = 3, .kernel = 3, .padding = 1, .stride = 2};
  const std::vector values{test::doubles(test::numbers(shape.input.size(), 1)),
                           test::doubles(test::numbers(weights_of(shape), 2)),
                           test::doubles(test::numbers(shape.outputs, 3))};
  const test::Doubles dy = test::doubles(test::numbers(shape.output().size(), 4));
  const auto f = [&](const std::vector<test::Doubles>& v) {
    return reference::convolution(shape, v[0], v[1], v[2]);
  };
  const reference::Gradients g = reference::convolution_backward(shape, values[0], values[1], dy);
  test::expect_differences(values, 0, dy, g.dx, f);
  test::expect_differences(values, 1, dy, g.dw, f);
  test::expect_differences(values, 2, dy, g.db, f);
}

TEST(ConvolutionOperation, GivesTheBitsOfItsInputsAlone) {
  for (const ConvolutionShape& shape : convolution_shapes()) {
    if (shape.input.channels % 16 != 0) continue;
    const ops::ConvolutionSpec spec(shape);
    test::expect_bits_of_inputs_alone(
        {spec,
         {input_of(shape)},
         [&](OperationRun& op, int64_t seed) { fill_convolution(op, shape, seed); },
         1,
         false});
  }
}

TEST(ConvolutionOperation, RefusesAStrideOfZeroAndAnImageBelowItsKernel) {
  const auto error_of = [](const ConvolutionShape& shape) -> std::string {
    const std::vector inputs{input_of(shape)};
    return thrown(ErrorCode::kUsage, [&] { ops::ConvolutionSpec(shape).check("conv1", inputs); });
  };
  EXPECT_THAT(error_of({.input = {1, 1, 4, 4}, .outputs = 1, .stride = 0}),
              testing::HasSubstr("conv1 has a kernel of 1 with padding 0 and stride 0"));
  EXPECT_THAT(error_of({.input = {1, 1, 4, 2}, .outputs = 1, .kernel = 3, .stride = 2}),
              testing::HasSubstr("conv1's output"));
}

}  // namespace
}  // namespace pushpull
