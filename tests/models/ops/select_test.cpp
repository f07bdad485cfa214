#include <gtest/gtest.h>

#include "models/ops/sequence.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull {
namespace {

using ops::SelectShape;
using test::numbers;
using test::OperationRun;

TEST(SelectOperation, TakesOneSliceAndGivesTheOthersNoGradient) {
  const ops::SelectSpec spec({.outer = 2, .size = 3, .inner = 2, .index = 1}, {2, 2});
  OperationRun op(1, spec, {ops::activation({2, 3, 2})});
  op.set_input(0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  EXPECT_EQ(op.forward(), (std::vector<float>{2, 3, 8, 9}));
  op.backward({1, 2, 3, 4});
  EXPECT_EQ(op.dx(0), (std::vector<float>{0, 0, 1, 2, 0, 0, 0, 0, 3, 4, 0, 0}));
}

TEST(SelectOperation, HasBitsOfItsInputsAlone) {
  for (const SelectShape& shape : {SelectShape{.outer = 1, .size = 1, .inner = 1, .index = 0},
                                   SelectShape{.outer = 101, .size = 2, .inner = 1, .index = 1},
                                   SelectShape{.outer = 53, .size = 7, .inner = 997, .index = 0}}) {
    const ops::SelectSpec spec(shape, {shape.outer, shape.inner});
    test::expect_bits_of_inputs_alone(
        {.spec = spec,
         .inputs = {ops::activation({shape.outer, shape.size, shape.inner})},
         .fill = [shape](OperationRun& op, int64_t seed) {
           op.set_input(0, numbers(shape.outer * shape.size * shape.inner, seed));
         }});
  }
}

}  // namespace
}  // namespace pushpull
