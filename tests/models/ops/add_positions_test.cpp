#include <gtest/gtest.h>

#include "models/ops/sequence.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull {
namespace {

using ops::AddPositionsShape;
using test::numbers;
using test::OperationRun;

const AddPositionsShape kPositionShapes[] = {
    {.samples = 1, .positions = 1, .width = 1, .limit = 1},
    {.samples = 3, .positions = 5, .width = 7, .limit = 6},
    {.samples = 7, .positions = 61, .width = 97, .limit = 61},
};

std::vector<ops::ValueType> inputs_of(const AddPositionsShape& shape) {
  return {ops::activation({shape.samples, shape.positions, shape.width})};
}

TEST(AddPositionsOperation, AddsARowPerPosition) {
  for (const AddPositionsShape& shape : kPositionShapes) {
    const ops::AddPositionsSpec spec(shape);
    OperationRun op(1, spec, inputs_of(shape));
    const auto sample = static_cast<size_t>(shape.positions * shape.width);
    const size_t count = sample * static_cast<size_t>(shape.samples);
    const std::vector<float> x = numbers(static_cast<int64_t>(count), 1);
    const std::vector<float> w = numbers(shape.limit * shape.width, 2);
    op.set_input(0, x);
    op.set_param(0, w);
    const std::vector<float> y = op.forward();
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(y[i], x[i] + w[i % sample]);

    const std::vector<float> dy = numbers(static_cast<int64_t>(count), 3);
    op.backward(dy);
    EXPECT_EQ(op.dx(0), dy);
    std::vector<double> dw(w.size(), 0.0);
    for (size_t i = 0; i < count; ++i) dw[i % sample] += static_cast<double>(dy[i]);
    test::expect_close("dw", op.dw(0), dw, 1e-6);
  }
}

TEST(AddPositionsOperation, SumsSamplesInRisingOrder) {
  const AddPositionsShape shape{.samples = 3, .positions = 1, .width = 1, .limit = 2};
  const ops::AddPositionsSpec spec(shape);
  OperationRun op(1, spec, inputs_of(shape));
  op.backward({1, 1e8F, -1e8F});
  EXPECT_EQ(op.dw(0), (std::vector<float>{0, 0}));
}

TEST(AddPositionsOperation, HasBitsOfItsInputsAlone) {
  for (const AddPositionsShape& shape : kPositionShapes) {
    const ops::AddPositionsSpec spec(shape);
    test::expect_bits_of_inputs_alone(
        {.spec = spec, .inputs = inputs_of(shape), .fill = [shape](OperationRun& op, int64_t seed) {
           op.set_input(0, numbers(shape.samples * shape.positions * shape.width, seed));
           op.set_param(0, numbers(shape.limit * shape.width, 2));
         }});
  }
}

}  // namespace
}  // namespace pushpull
