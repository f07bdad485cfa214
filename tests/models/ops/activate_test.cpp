#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "models/ops/pointwise.h"
#include "tests/models/ops/blocks.h"
#include "tests/models/ops/differences.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull {
namespace {

using ops::Function;
using test::Doubles;
using test::numbers;
using test::OperationRun;

constexpr Function kFunctions[] = {Function::kRelu, Function::kTanh, Function::kGeluErf,
                                   Function::kGeluTanh};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double value_of(Function function, double x) {
  switch (function) {
    case Function::kRelu:
      return std::max(x, 0.0);
    case Function::kTanh:
      return std::tanh(x);
    case Function::kGeluErf:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Function::kGeluTanh:
      break;
  }
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * u));
}

double slope_of(Function function, double x) {
  switch (function) {
    case Function::kRelu:
      return x > 0.0 ? 1.0 : 0.0;
    case Function::kTanh:
      return 1.0 - std::tanh(x) * std::tanh(x);
    case Function::kGeluErf:
      return 0.5 * std::erfc(-x / std::numbers::sqrt2) +
             x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
    case Function::kGeluTanh:
      break;
  }
  const double c = std::sqrt(2.0 / std::numbers::pi);
  const double s = 1.0 / (1.0 + std::exp(-2.0 * c * (x + 0.044715 * x * x * x)));
  return s + x * s * (1.0 - s) * 2.0 * c * (1.0 + 3.0 * 0.044715 * x * x);
}

// Returns numbers of all sizes up to 100, of both signs.
std::vector<float> arguments() {
  std::vector<float> out{0.0F, -0.0F, 0.625F, -0.625F, 1e-30F};
  for (double x = 1e-6; x < 100.0; x *= 1.01) {
    out.push_back(static_cast<float>(x));
    out.push_back(static_cast<float>(-x));
  }
  return out;
}

TEST(ActivateOperation, SlopesMatchDifferences) {
  for (const Function function : kFunctions) {
    const Doubles x{-2.5, -1.0, -0.3, 0.2, 0.7, 1.9};
    Doubles slopes;
    for (const double at : x) slopes.push_back(slope_of(function, at));
    test::expect_differences({x}, 0, Doubles(x.size(), 1.0), slopes, [&](const auto& values) {
      Doubles y;
      for (const double at : values[0]) y.push_back(value_of(function, at));
      return y;
    });
  }
}

// Values may be off by a few units of their last place. The series of gelu-erf adds 1.5e-7 x / 2.
TEST(ActivateOperation, MatchesThePlainFunction) {
  const std::vector<float> x = arguments();
  const auto count = static_cast<int64_t>(x.size());
  const std::vector<float> dy = numbers(count, 3);
  for (const Function function : kFunctions) {
    const ops::ActivateSpec spec(function, {count});
    OperationRun op(1, spec, {spec.output()});
    op.set_input(0, x);
    const std::vector<float> y = op.forward();
    op.backward(dy);
    const std::vector<float> dx = op.dx(0);
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = value_of(function, static_cast<double>(x[i]));
      const double size = std::fabs(static_cast<double>(x[i]));
      ASSERT_NEAR(y[i], want, 3e-7 * std::min(size, 1.0) + 3e-7 * std::fabs(want))
          << static_cast<int>(function) << " at " << x[i];
      ASSERT_NEAR(dx[i], static_cast<double>(dy[i]) * slope_of(function, static_cast<double>(x[i])),
                  1e-6)
          << static_cast<int>(function) << " at " << x[i];
    }
  }
}

TEST(ActivateOperation, KnowsZeroInfinityAndNan) {
  const auto infinity = static_cast<float>(kInfinity);
  for (const Function function : kFunctions) {
    const ops::ActivateSpec spec(function, {4});
    OperationRun op(1, spec, {spec.output()});
    op.set_input(0, {0.0F, infinity, test::kPoison, 500.0F});
    const std::vector<float> y = op.forward();
    EXPECT_EQ(y[0], 0.0F);
    EXPECT_EQ(y[1], function == Function::kTanh ? 1.0F : infinity);
    EXPECT_TRUE(std::isnan(y[2])) << static_cast<int>(function);
    EXPECT_EQ(y[3], function == Function::kTanh ? 1.0F : 500.0F);
    op.backward({1, 1, 1, 1});
    EXPECT_NEAR(op.dx(0)[3], function == Function::kTanh ? 0.0 : 1.0, 1e-6);
    EXPECT_EQ(op.dx(0)[0], static_cast<float>(slope_of(function, 0.0)));
  }
}

TEST(ActivateOperation, HasBitsOfItsInputsAlone) {
  for (const Function function : kFunctions) {
    for (const int64_t count : {1, 37, 20'011}) {
      const ops::ActivateSpec spec(function, {count});
      test::expect_bits_of_inputs_alone({.spec = spec,
                                         .inputs = {spec.output()},
                                         .fill = [count](OperationRun& op, int64_t seed) {
                                           op.set_input(0, numbers(count, seed));
                                         }});
    }
  }
}

// Zeros behind the last channel stay zeros.
TEST(ActivateOperation, ActivatesImagesInBlocks) {
  const ops::ImageShape image{.samples = 2, .channels = 3, .height = 5, .width = 1};
  for (const Function function :
       {Function::kRelu, Function::kTanh, Function::kGeluErf, Function::kGeluTanh}) {
    const ops::ActivateSpec spec(function, ops::native_image(image));
    OperationRun op(1, spec, {ops::native_image(image)});
    const std::vector<float> x = test::numbers(30, 1);
    op.set_input(0, test::in_blocks(image, x));
    const std::vector<float> y = op.forward();
    EXPECT_EQ(test::in_blocks(image, test::from_blocks(image, y)), y);
    const std::vector<float> dy = test::in_blocks(image, test::numbers(30, 2));
    op.backward(dy);
    EXPECT_EQ(test::in_blocks(image, test::from_blocks(image, op.dx(0))), op.dx(0));

    const ops::ActivateSpec flat(function, {30});
    OperationRun rows(1, flat, {ops::activation({30})});
    rows.set_input(0, x);
    EXPECT_EQ(rows.forward(), test::from_blocks(image, y));
  }
}

}  // namespace
}  // namespace pushpull
