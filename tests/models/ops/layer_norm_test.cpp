#include <gtest/gtest.h>

#include <cmath>

#include "models/ops/norms.h"
#include "tests/models/ops/differences.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull {
namespace {

using ops::LayerNormShape;
using test::Doubles;
using test::numbers;
using test::OperationRun;

const LayerNormShape kNormShapes[] = {
    {.rows = 1, .width = 1},
    {.rows = 3, .width = 7},
    {.rows = 65, .width = 16, .epsilon = 1e-3F},
    {.rows = 3, .width = 7, .centred = false},
    {.rows = 131, .width = 97},
    {.rows = 131, .width = 97, .centred = false},
};

ops::LayerNormSpec spec_of(const LayerNormShape& shape) {
  return {shape, ops::Shape{shape.rows, shape.width}};
}

// The plain loop. `values` are x, scale and shift.
Doubles normalised(const LayerNormShape& shape, const std::vector<Doubles>& values) {
  const auto width = static_cast<size_t>(shape.width);
  Doubles y(values[0].size());
  for (size_t start = 0; start < y.size(); start += width) {
    double mean = 0.0;
    double variance = 0.0;
    for (size_t j = 0; j < width; ++j) mean += values[0][start + j] / static_cast<double>(width);
    if (!shape.centred) mean = 0.0;
    for (size_t j = 0; j < width; ++j) {
      variance += std::pow(values[0][start + j] - mean, 2) / static_cast<double>(width);
    }
    const double deviation = std::sqrt(variance + static_cast<double>(shape.epsilon));
    for (size_t j = 0; j < width; ++j) {
      y[start + j] = (values[0][start + j] - mean) / deviation * values[1][j] +
                     (shape.centred ? values[2][j] : 0.0);
    }
  }
  return y;
}

void fill(const LayerNormShape& shape, OperationRun& op, int64_t seed) {
  op.set_input(0, numbers(shape.rows * shape.width, seed));
  op.set_param(0, numbers(shape.width, seed + 1));
  if (shape.centred) op.set_param(1, numbers(shape.width, seed + 2));
}

// The gradient of the plain loop by its formula, which GradientMatchesDifferences checks.
std::vector<Doubles> gradients_of(const LayerNormShape& shape, const std::vector<Doubles>& values,
                                  const Doubles& dy) {
  const auto width = static_cast<size_t>(shape.width);
  const auto count = static_cast<double>(shape.width);
  std::vector<Doubles> out{Doubles(dy.size()), Doubles(width), Doubles(width)};
  const Doubles ones(width, 1.0);
  const Doubles h = normalised(shape, {values[0], ones, Doubles(width, 0.0)});
  for (size_t start = 0; start < dy.size(); start += width) {
    double square = 0.0;
    double mean = 0.0;
    double g = 0.0;
    double product = 0.0;
    for (size_t j = 0; j < width; ++j) {
      mean += values[0][start + j] / count;
      g += dy[start + j] * values[1][j] / count;
      product += dy[start + j] * values[1][j] * h[start + j] / count;
      out[1][j] += dy[start + j] * h[start + j];
      out[2][j] += dy[start + j];
    }
    if (!shape.centred) g = mean = 0.0;
    for (size_t j = 0; j < width; ++j) square += std::pow(values[0][start + j] - mean, 2) / count;
    const double inverse = 1.0 / std::sqrt(square + static_cast<double>(shape.epsilon));
    for (size_t j = 0; j < width; ++j) {
      out[0][start + j] = inverse * (dy[start + j] * values[1][j] - g - h[start + j] * product);
    }
  }
  return out;
}

std::vector<Doubles> values_of(const LayerNormShape& shape, int64_t seed) {
  return {test::doubles(numbers(shape.rows * shape.width, seed)),
          test::doubles(numbers(shape.width, seed + 1)),
          test::doubles(numbers(shape.width, seed + 2))};
}

TEST(LayerNormOperation, GradientMatchesDifferences) {
  for (const LayerNormShape& shape : {kNormShapes[1], kNormShapes[3]}) {
    const Doubles dy = test::doubles(numbers(shape.rows * shape.width, 9));
    const std::vector<Doubles> values = values_of(shape, 1);
    const std::vector<Doubles> gradients = gradients_of(shape, values, dy);
    for (size_t i = 0; i < (shape.centred ? 3 : 2); ++i) {
      test::expect_differences(values, i, dy, gradients[i],
                               [&](const auto& at) { return normalised(shape, at); });
    }
  }
}

TEST(LayerNormOperation, MatchesThePlainLoop) {
  for (const LayerNormShape& shape : kNormShapes) {
    const ops::LayerNormSpec spec = spec_of(shape);
    OperationRun op(1, spec, {spec.output()});
    fill(shape, op, 1);
    const std::vector<Doubles> values = values_of(shape, 1);
    test::expect_close("y", op.forward(), normalised(shape, values), 2e-6);
    const std::vector<float> dy = numbers(shape.rows * shape.width, 9);
    op.backward(dy);
    const std::vector<Doubles> gradients = gradients_of(shape, values, test::doubles(dy));
    test::expect_close("dx", op.dx(0), gradients[0], 4e-6);
    test::expect_close("dscale", op.dw(0), gradients[1], 4e-6);
    if (shape.centred) test::expect_close("dshift", op.dw(1), gradients[2], 4e-6);
  }
}

TEST(LayerNormOperation, KeepsSmallDifferencesOfLargeValues) {
  const LayerNormShape shape{.rows = 1, .width = 4};
  const ops::LayerNormSpec spec = spec_of(shape);
  OperationRun op(1, spec, {spec.output()});
  op.set_input(0, {4096, 4097, 4098, 4099});
  op.set_param(0, {1, 1, 1, 1});
  op.set_param(1, {0, 0, 0, 0});
  const double unit = 1.0 / std::sqrt(1.25 + 1e-5);
  test::expect_close("y", op.forward(), {-1.5 * unit, -0.5 * unit, 0.5 * unit, 1.5 * unit}, 1e-6);
}

TEST(LayerNormOperation, EvaluatesWithoutKeeping) {
  const ops::LayerNormSpec spec = spec_of(kNormShapes[4]);
  OperationRun op(1, spec, {spec.output()});
  fill(kNormShapes[4], op, 1);
  const std::vector<float> y = op.forward();
  op.run.training = false;
  op.run.kept = nullptr;
  EXPECT_EQ(op.forward(), y);
}

TEST(LayerNormOperation, HasBitsOfItsInputsAlone) {
  for (const LayerNormShape& shape : {kNormShapes[0], kNormShapes[4], kNormShapes[5],
                                      LayerNormShape{.rows = 300, .width = 333}}) {
    const ops::LayerNormSpec spec = spec_of(shape);
    test::expect_bits_of_inputs_alone(
        {.spec = spec, .inputs = {spec.output()}, .fill = [shape](OperationRun& op, int64_t seed) {
           fill(shape, op, seed);
         }});
  }
}

}  // namespace
}  // namespace pushpull
