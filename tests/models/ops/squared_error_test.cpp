#include <gtest/gtest.h>

#include "models/ops/losses.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull::squared_error_test {
namespace {

using test::OperationRun;

constexpr float kScale = 0.125F;

std::vector<ops::ValueType> inputs(int64_t targets) {
  return {ops::activation({targets}), {ops::Element::kFloat, ops::Layout::kPlain, {targets}}};
}

void fill(OperationRun& op, int64_t targets, int64_t seed) {
  op.set_input(0, test::numbers(targets, seed));
  op.set_input(1, test::numbers(targets, seed + 1));
  op.run.valid = targets;
  op.run.scale = &kScale;
}

TEST(SquaredErrorOperation, AgreesWithALoopInDouble) {
  for (const int64_t targets : {1, 7, 64, 1009}) {
    const ops::SquaredErrorSpec spec(targets);
    OperationRun op(1, spec, inputs(targets), 0b10);
    fill(op, targets, 1);
    const std::vector<float> x = test::numbers(targets, 1);
    const std::vector<float> target = test::numbers(targets, 2);
    std::vector<double> y;
    std::vector<double> dx;
    for (size_t n = 0; n < x.size(); ++n) {
      const double far = static_cast<double>(x[n]) - static_cast<double>(target[n]);
      y.push_back(far * far);
      dx.push_back(static_cast<double>(kScale) * 2.0 * far);
    }
    test::expect_close("y", op.forward(), y, 1e-6);
    op.backward(test::numbers(targets, 3));
    test::expect_close("dx", op.dx(0), dx, 1e-6);
  }
}

TEST(SquaredErrorOperation, EvaluatesTheFirstTargets) {
  const ops::SquaredErrorSpec spec(3);
  OperationRun op(1, spec, inputs(3), 0b10);
  op.set_input(0, {1, 2, 3});
  op.set_input(1, {1, 4, 0});
  op.run.valid = 2;
  op.run.training = false;
  const std::vector<float> y = op.forward();
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_EQ(y[1], 4.0F);
  EXPECT_TRUE(std::isnan(y[2])) << "a target that does not count is not written";
}

TEST(SquaredErrorOperation, WritesTheGradientIntoTheMemoryOfTheOutputs) {
  const ops::SquaredErrorSpec spec(3);
  OperationRun op(1, spec, inputs(3), 0b10);
  fill(op, 3, 1);
  op.set_input(0, {1, 2, 3});
  op.set_input(1, {1, 4, 0});
  ASSERT_TRUE(op.needs().gradient_in_input);
  op.run.dx[0].data = const_cast<float*>(op.run.x[0].floats());
  op.forward();
  op.backward({0, 0, 0});
  EXPECT_EQ(op.dx(0), (std::vector<float>{0, -0.5F, 0.75F}));
}

TEST(SquaredErrorOperation, GivesTheBitsOfItsInputsAlone) {
  const ops::SquaredErrorSpec spec(1009);
  test::expect_bits_of_inputs_alone(
      {spec, inputs(1009), [](OperationRun& op, int64_t seed) { fill(op, 1009, seed); }});
}

}  // namespace
}  // namespace pushpull::squared_error_test
