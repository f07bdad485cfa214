#include <gtest/gtest.h>

#include "models/ops/pointwise.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull {
namespace {

using test::numbers;
using test::OperationRun;

TEST(AddOperation, AddsAndGivesBothInputsTheGradient) {
  const ops::AddSpec spec(ops::activation({3, 7}));
  OperationRun op(1, spec, {ops::activation({3, 7}), ops::activation({3, 7})});
  const std::vector<float> a = numbers(21, 1);
  const std::vector<float> b = numbers(21, 2);
  op.set_input(0, a);
  op.set_input(1, b);
  const std::vector<float> y = op.forward();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], a[i] + b[i]);
  op.backward(numbers(21, 3));
  EXPECT_EQ(op.dx(0), numbers(21, 3));
  EXPECT_EQ(op.dx(1), numbers(21, 3));
}

TEST(AddOperation, WritesNoGradientThatIsNotWanted) {
  const ops::AddSpec spec(ops::activation({1}));
  OperationRun op(1, spec, {ops::activation({1}), ops::activation({1})}, 0b01);
  op.backward({2});
  EXPECT_EQ(op.dx(1), std::vector<float>{2});
}

TEST(AddOperation, AddsImagesInBlocks) {
  const auto type = ops::native_image({.samples = 2, .channels = 3, .height = 5, .width = 1});
  const ops::AddSpec spec(type);
  OperationRun op(1, spec, {type, type});
  const auto count = static_cast<int64_t>(op.dx(0).size());
  EXPECT_GE(count, 30);
  op.set_input(0, numbers(count, 1));
  op.set_input(1, std::vector<float>(static_cast<size_t>(count), 0.0F));
  EXPECT_EQ(op.forward(), numbers(count, 1));
}

TEST(AddOperation, HasBitsOfItsInputsAlone) {
  for (const int64_t count : {1, 37, 40'009}) {
    const ops::AddSpec spec(ops::activation({count}));
    test::expect_bits_of_inputs_alone(
        {.spec = spec,
         .inputs = {ops::activation({count}), ops::activation({count})},
         .fill =
             [count](OperationRun& op, int64_t seed) {
               op.set_input(0, numbers(count, seed));
               op.set_input(1, numbers(count, seed + 9));
             },
         .gradients = 2});
  }
}

}  // namespace
}  // namespace pushpull
