#include <gtest/gtest.h>

#include "models/ops/norms.h"
#include "tests/models/ops/blocks.h"
#include "tests/models/ops/differences.h"
#include "tests/models/ops/same_bits.h"
#include "tests/models/reference.h"

namespace pushpull {
namespace {

using ops::BatchNormShape;
using test::OperationRun;

void fill_batch_norm(OperationRun& op, const BatchNormShape& shape, int64_t seed,
                     ops::Precision precision = ops::Precision::kFp32) {
  const int64_t channels = shape.image.channels;
  const std::vector<float> x = test::numbers(shape.image.size(), seed, precision);
  op.set_input(0, test::in_blocks(shape.image, x));
  op.set_param(0, test::numbers(channels, seed + 1));
  op.set_param(1, test::numbers(channels, seed + 2));
  op.set_param(2, test::numbers(channels, seed + 3));
  std::vector<float> variance = test::numbers(channels, seed + 4);
  for (float& value : variance) value += 1.5F;
  op.set_param(3, variance);
}

std::vector<BatchNormShape> batch_norm_shapes() {
  std::vector<BatchNormShape> out;
  for (const bool relu : {false, true}) {
    out.push_back({.image = {4, 16, 5, 7}, .relu = relu});
    out.push_back({.image = {5, 32, 1, 1}, .relu = relu});
    out.push_back({.image = {3, 5, 3, 3}, .relu = relu});
    out.push_back({.image = {1, 19, 11, 2}, .relu = relu});
    out.push_back({.image = {10, 16, 28, 28}, .relu = relu});
  }
  return out;
}

void expect_agreement_with_double(const BatchNormShape& shape, int threads,
                                  ops::Precision precision) {
  const ops::BatchNormSpec spec(shape);
  const ops::ImageShape& image = shape.image;
  OperationRun op(threads, spec, {ops::native_image(image)}, 0, precision);
  fill_batch_norm(op, shape, 1, precision);
  const test::Doubles x = test::doubles(test::numbers(image.size(), 1, precision));
  const test::Doubles scale = test::doubles(test::numbers(image.channels, 2));
  const test::Doubles shift = test::doubles(test::numbers(image.channels, 3));
  reference::BatchNormOutput expected = reference::batch_norm(shape, x, scale, shift);
  // f32 sums of thousands of values that cancel
  const double more = image.size() > 10'000 ? 100.0 : 1.0;
  test::expect_close("y", test::from_blocks(image, op.forward()), expected.y,
                     test::tolerance_in(precision, more * 1e-6, 1));
  test::expect_close("mean", op.dw(2), expected.mean, more * 1e-6);
  test::Doubles unbiased = expected.variance;
  for (double& value : unbiased) value *= expected.unbiased;
  test::expect_close("variance", op.dw(3), unbiased, more * 1e-6);

  const std::vector<float> dy = test::numbers(image.size(), 6, precision);
  op.backward(test::in_blocks(image, dy));
  const reference::Gradients g =
      reference::batch_norm_backward(shape, x, scale, expected, test::doubles(dy));
  test::expect_close("dx", test::from_blocks(image, op.dx(0)), g.dx,
                     test::tolerance_in(precision, more * 1e-5, 1));
  test::expect_close("dscale", op.dw(0), g.dw, more * 1e-5);
  test::expect_close("dshift", op.dw(1), g.db, more * 1e-5);
}

TEST(BatchNormOperation, AgreesWithALoopInDouble) {
  for (const ops::Precision precision : test::cpu_precisions()) {
    for (const int threads : {1, 2}) {
      for (const BatchNormShape& shape : batch_norm_shapes()) {
        SCOPED_TRACE(testing::Message() << to_string(precision) << " " << shape.image.channels
                                        << " channels, relu " << shape.relu);
        expect_agreement_with_double(shape, threads, precision);
      }
    }
  }
}

TEST(BatchNormOperation, TheLoopHasTheGradientOfItsOutput) {
  const BatchNormShape shape{.image = {2, 3, 2, 3}, .relu = true};
  const std::vector values{test::doubles(test::numbers(36, 1)), test::doubles(test::numbers(3, 2)),
                           test::doubles(test::numbers(3, 3))};
  const test::Doubles dy = test::doubles(test::numbers(36, 4));
  const auto f = [&](const std::vector<test::Doubles>& v) {
    return reference::batch_norm(shape, v[0], v[1], v[2]).y;
  };
  const reference::Gradients g = reference::batch_norm_backward(
      shape, values[0], values[1], reference::batch_norm(shape, values[0], values[1], values[2]),
      dy);
  test::expect_differences(values, 0, dy, g.dx, f);
  test::expect_differences(values, 1, dy, g.dw, f);
  test::expect_differences(values, 2, dy, g.db, f);
}

TEST(BatchNormOperation, EvaluatesWithTheGivenStatistics) {
  for (const BatchNormShape& shape : batch_norm_shapes()) {
    const ops::BatchNormSpec spec(shape);
    const ops::ImageShape& image = shape.image;
    OperationRun op(1, spec, {ops::native_image(image)});
    fill_batch_norm(op, shape, 1);
    op.run.training = false;
    op.run.kept = nullptr;
    const std::vector<float> variance = test::numbers(image.channels, 5);
    test::Doubles shifted;
    for (const float value : variance) shifted.push_back(static_cast<double>(value + 1.5F));
    const test::Doubles expected =
        reference::normalize(shape, test::doubles(test::numbers(image.size(), 1)),
                             test::doubles(test::numbers(image.channels, 2)),
                             test::doubles(test::numbers(image.channels, 3)),
                             test::doubles(test::numbers(image.channels, 4)), shifted);
    test::expect_close("y", test::from_blocks(image, op.forward()), expected, 1e-6);
  }
}

TEST(BatchNormOperation, GivesTheBitsOfItsInputsAlone) {
  for (const BatchNormShape& shape : batch_norm_shapes()) {
    if (shape.image.channels % 16 != 0) continue;
    const ops::BatchNormSpec spec(shape);
    test::expect_bits_of_inputs_alone(
        {spec,
         {ops::native_image(shape.image)},
         [&](OperationRun& op, int64_t seed) { fill_batch_norm(op, shape, seed); },
         1,
         false});
  }
}

TEST(BatchNormOperation, ComputesTheGradientsOfItsParametersWithoutThatOfItsInput) {
  for (const BatchNormShape& shape : batch_norm_shapes()) {
    const ops::BatchNormSpec spec(shape);
    const ops::ImageShape& image = shape.image;
    std::vector<std::vector<float>> gradients;
    for (const uint32_t without : {0U, 1U}) {
      OperationRun op(1, spec, {ops::native_image(image)}, without);
      fill_batch_norm(op, shape, 1);
      op.forward();
      op.backward(test::in_blocks(image, test::numbers(image.size(), 6)));
      gradients.push_back(op.dw(0));
      gradients.push_back(op.dw(1));
    }
    EXPECT_TRUE(test::same_bits(gradients[0], gradients[2]));
    EXPECT_TRUE(test::same_bits(gradients[1], gradients[3]));
  }
}

}  // namespace
}  // namespace pushpull
