#include "models/ops/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "models/ops/cpu/activations.h"
#include "tests/common/thrown.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull {
namespace {

using test::OperationRun;

TEST(LinearOperation, ComputesRowsTimesWeight) {
  const ops::LinearSpec spec({.samples = 2, .inputs = 3, .outputs = 2});
  OperationRun op(1, spec, {ops::activation({2, 3})});
  op.set_input(0, {1, 2, 3, 4, 5, 6});
  op.set_param(0, {1, 0, 0, 0, 1, 1});
  op.set_param(1, {0.5F, -1});
  EXPECT_EQ(op.forward(), (std::vector<float>{1.5F, 4, 4.5F, 10}));
  op.backward({1, 0, 0, 2});
  EXPECT_EQ(op.dx(0), (std::vector<float>{1, 0, 0, 0, 2, 2}));
  EXPECT_EQ(op.dw(0), (std::vector<float>{1, 2, 3, 8, 10, 12}));
  EXPECT_EQ(op.dw(1), (std::vector<float>{1, 2}));
}

// Returns c = a b for row-major matrices [n, k] and [k, m], either stored as its transpose.
std::vector<double> product(const std::vector<float>& a, bool a_transposed,
                            const std::vector<float>& b, bool b_transposed, int64_t n, int64_t k,
                            int64_t m) {
  std::vector<double> c;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < m; ++j) {
      double sum = 0.0;
      for (int64_t l = 0; l < k; ++l) {
        const float left = a[static_cast<size_t>(a_transposed ? l * n + i : i * k + l)];
        const float right = b[static_cast<size_t>(b_transposed ? j * k + l : l * m + j)];
        sum += static_cast<double>(left) * static_cast<double>(right);
      }
      c.push_back(sum);
    }
  }
  return c;
}

void fill_linear(OperationRun& op, const ops::LinearShape& shape, int64_t seed) {
  op.set_input(0, test::numbers(shape.samples * shape.inputs, seed));
  op.set_param(0, test::numbers(shape.outputs * shape.inputs, seed + 1));
  if (shape.bias) op.set_param(1, test::numbers(shape.outputs, seed + 2));
}

// f32 sums of up to 3072 products, relative to the largest result.
constexpr double kLinearTolerance = 3e-6;

void expect_agreement_with_double(const ops::LinearShape& shape, int threads) {
  const auto [n, k, m, relu, bias, transposed] = shape;
  const ops::LinearSpec spec(shape);
  OperationRun op(threads, spec, {ops::activation({n, k})});
  fill_linear(op, shape, 1);
  const std::vector<float> x = test::numbers(n * k, 1);
  const std::vector<float> w = test::numbers(m * k, 2);
  const std::vector<float> b = test::numbers(m, 3);
  std::vector<double> y = product(x, false, w, !transposed, n, k, m);
  std::vector<float> dy = test::numbers(n * m, 4);
  std::vector<float> masked = dy;
  std::vector<double> db(static_cast<size_t>(m));
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t column = i % static_cast<size_t>(m);
    if (bias) y[i] += static_cast<double>(b[column]);
    if (relu && y[i] <= 0.0) y[i] = masked[i] = 0.0F;
    db[column] += static_cast<double>(masked[i]);
  }
  test::expect_close("y", op.forward(), y, kLinearTolerance);
  op.backward(dy);
  test::expect_close("dx", op.dx(0), product(masked, false, w, transposed, n, m, k),
                     kLinearTolerance);
  test::expect_close("dw", op.dw(0),
                     transposed ? product(x, true, masked, false, k, n, m)
                                : product(masked, true, x, false, m, n, k),
                     kLinearTolerance);
  if (bias) test::expect_close("db", op.dw(1), db, kLinearTolerance);
}

std::vector<ops::LinearShape> linear_shapes() {
  std::vector<ops::LinearShape> out;
  for (const bool relu : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const bool transposed : {false, true}) {
        out.push_back({1, 1, 1, relu, bias, transposed});
        out.push_back({7, 13, 5, relu, bias, transposed});
        out.push_back({31, 64, 601, relu, bias, transposed});
        out.push_back({33, 700, 130, relu, bias, transposed});
        // rows of more than 2048 floats, which gradients read by sgemm
        out.push_back({3, 2051, 5, relu, bias, transposed});
        out.push_back({3, 5, 3072, relu, bias, transposed});
      }
    }
  }
  return out;
}

TEST(LinearOperation, AgreesWithALoopInDouble) {
  for (const int threads : {1, 2}) {
    for (const ops::LinearShape& shape : linear_shapes()) {
      expect_agreement_with_double(shape, threads);
    }
  }
}

double largest(const std::vector<float>& values) {
  double most = 0.0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

// Numbers that are not finite are found at every place, whatever follows them.
TEST(LinearOperation, LargestValueIsNotFiniteIfOneIsNot) {
  constexpr int64_t kCount = 3000;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kInf, -kInf, std::nanf(""), -std::nanf("")}) {
    for (const size_t place : {0, 5, 1500, 2999}) {
      std::vector<float> wide(kCount, -3.0F);
      std::vector<ops::Bf16> narrow(kCount, ops::from_float<ops::Bf16>(-3.0F));
      EXPECT_EQ(ops::cpu::largest_absolute(wide.data(), kCount), 3.0F);
      EXPECT_EQ(ops::cpu::largest_absolute(narrow.data(), kCount), 3.0F);
      wide[place] = bad;
      narrow[place] = ops::from_float<ops::Bf16>(bad);
      EXPECT_FALSE(std::isfinite(ops::cpu::largest_absolute(wide.data(), kCount))) << place;
      EXPECT_FALSE(std::isfinite(ops::cpu::largest_absolute(narrow.data(), kCount))) << place;
    }
  }
}

// Bounds are given where they cost less than reading the gradient, and hold also if rounding adds.
TEST(LinearOperation, BoundsItsGradients) {
  for (const bool transposed : {false, true}) {
    const ops::LinearShape shape{
        .samples = 4, .inputs = 40, .outputs = 60, .relu = true, .transposed = transposed};
    const ops::LinearSpec spec(shape);
    OperationRun op(1, spec, {ops::activation({4, 40})});
    fill_linear(op, shape, 1);
    op.forward();
    std::vector<float> dy = test::numbers(4 * 60, 4);
    const ops::GradientBounds bounds = op.bounds(dy);
    for (const size_t i : {0, 1}) {
      EXPECT_GE(bounds.at(i), largest(op.dw(i)));
      EXPECT_LE(bounds.at(i), 100 * largest(op.dw(i)));
    }
    const std::vector<float> ones(4 * 40, 1.0F);
    op.set_input(0, ones);
    op.set_param(0, std::vector<float>(40 * 60, 1.0F));
    op.forward();
    EXPECT_EQ(op.bounds(std::vector<float>(4 * 60, -2.0F))[0], 8.0);
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
      dy.assign(4 * 60, 1.0F);
      dy[77] = bad;
      EXPECT_FALSE(std::isfinite(op.bounds(dy)[0]));
      EXPECT_FALSE(std::isfinite(op.bounds(dy)[1]));
      std::vector<float> x = ones;
      x[99] = bad;
      op.set_input(0, x);
      EXPECT_FALSE(std::isfinite(op.bounds(std::vector<float>(4 * 60, 1.0F))[0]));
      op.set_input(0, ones);
    }
  }
  const ops::LinearSpec narrow({.samples = 40, .inputs = 40, .outputs = 60});
  OperationRun op(1, narrow, {ops::activation({40, 40})});
  fill_linear(op, narrow.shape(), 1);
  op.forward();
  EXPECT_TRUE(std::isinf(op.bounds(test::numbers(40 * 60, 4))[0]));
}

TEST(LinearOperation, GivesTheBitsOfItsInputsAlone) {
  for (const ops::LinearShape& shape : linear_shapes()) {
    const ops::LinearSpec spec(shape);
    test::expect_bits_of_inputs_alone(
        {spec,
         {ops::activation({shape.samples, shape.inputs})},
         [&](OperationRun& op, int64_t seed) { fill_linear(op, shape, seed); },
         1,
         false});
  }
}

TEST(LinearOperation, SumsTheBiasTheSameForAnyNumberOfThreads) {
  const ops::LinearShape shape{523, 3, 521, true, true, false};
  const ops::LinearSpec spec(shape);
  std::vector<std::vector<float>> sums;
  for (const int threads : {1, 2}) {
    OperationRun op(threads, spec, {ops::activation({shape.samples, shape.inputs})});
    fill_linear(op, shape, 1);
    op.forward();
    op.backward(test::numbers(shape.samples * shape.outputs, 4));
    sums.push_back(op.dw(1));
  }
  EXPECT_TRUE(test::same_bits(sums[0], sums[1]));
}

std::string error_of(const ops::LinearShape& shape, const ops::ValueType& input) {
  const std::vector inputs{input};
  return thrown(ErrorCode::kUsage, [&] { ops::LinearSpec(shape).check("layers.0", inputs); });
}

TEST(LinearOperation, NamesTheNodeWhoseInputDoesNotFit) {
  EXPECT_THAT(error_of({.samples = 2, .inputs = 3, .outputs = 2}, ops::activation({2, 4})),
              testing::HasSubstr("layers.0 needs 2 rows of 3 elements, got 2x4"));
}

TEST(LinearOperation, RefusesSizesThatNoKernelCounts) {
  EXPECT_THAT(error_of({0, 1, 1}, ops::activation({0, 1})),
              testing::HasSubstr("layers.0's input would have 0 x 1 elements"));
  EXPECT_THAT(error_of({1 << 20, 1 << 20, 1}, ops::activation({1 << 20, 1 << 20})),
              testing::HasSubstr("layers.0's input would have 1048576 x 1048576 elements"));
}

}  // namespace
}  // namespace pushpull
