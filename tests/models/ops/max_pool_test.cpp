#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "models/ops/pool.h"
#include "tests/common/thrown.h"
#include "tests/models/ops/blocks.h"
#include "tests/models/ops/differences.h"
#include "tests/models/ops/same_bits.h"
#include "tests/models/reference.h"

namespace pushpull {
namespace {

using ops::MaxPoolShape;
using test::OperationRun;

std::vector<MaxPoolShape> max_pool_shapes() {
  std::vector<MaxPoolShape> out;
  for (const ops::ImageShape image :
       {ops::ImageShape{2, 16, 8, 8}, ops::ImageShape{3, 5, 7, 5}, ops::ImageShape{1, 32, 3, 9}}) {
    out.push_back({.image = image});
    out.push_back({.image = image, .kernel = 3, .stride = 2, .padding = 1});
    out.push_back({.image = image, .kernel = 3, .stride = 1, .padding = 0});
    out.push_back({.image = image, .kernel = 2, .stride = 3, .padding = 1});
  }
  return out;
}

std::vector<float> below_zero(const MaxPoolShape& shape, int64_t seed, ops::Precision precision) {
  std::vector<float> x = test::numbers(shape.image.size(), seed);
  for (float& value : x) value -= 2.0F;  // padding of zeros would win
  if (precision == ops::Precision::kFp32) return x;
  for (float& value : x) value = ops::rounded<ops::Bf16>(value);
  return x;
}

void fill_max_pool(OperationRun& op, const MaxPoolShape& shape, int64_t seed,
                   ops::Precision precision = ops::Precision::kFp32) {
  op.set_input(0, test::in_blocks(shape.image, below_zero(shape, seed, precision)));
}

void expect_agreement_with_loop(const MaxPoolShape& shape, ops::Precision precision) {
  const ops::MaxPoolSpec spec(shape);
  OperationRun op(1, spec, {ops::native_image(shape.image)}, 0, precision);
  fill_max_pool(op, shape, 1, precision);
  const test::Doubles x = test::doubles(below_zero(shape, 1, precision));
  const ops::ImageShape output = shape.output();
  test::expect_close("y", test::from_blocks(output, op.forward()), reference::max_pool(shape, x),
                     0.0);
  const std::vector<float> dy = test::numbers(output.size(), 2, precision);
  op.backward(test::in_blocks(output, dy));
  // in bf16 each of up to 9 windows that an element may win rounds the sum
  test::expect_close("dx", test::from_blocks(shape.image, op.dx(0)),
                     reference::max_pool_backward(shape, x, test::doubles(dy)),
                     test::tolerance_in(precision, 1e-6, 9));
}

TEST(MaxPoolOperation, AgreesWithALoop) {
  for (const ops::Precision precision : test::cpu_precisions()) {
    for (const MaxPoolShape& shape : max_pool_shapes()) {
      SCOPED_TRACE(testing::Message()
                   << to_string(precision) << " kernel " << shape.kernel << " stride "
                   << shape.stride << " width " << shape.image.width);
      expect_agreement_with_loop(shape, precision);
    }
  }
}

TEST(MaxPoolOperation, TheLoopHasTheGradientOfItsOutput) {
  const MaxPoolShape shape{.image = {1, 2, 5, 4}, .kernel = 3, .stride = 2, .padding = 1};
  const std::vector<test::Doubles> values{test::doubles(test::numbers(40, 1))};
  const test::Doubles dy = test::doubles(test::numbers(shape.output().size(), 2));
  test::expect_differences(
      values, 0, dy, reference::max_pool_backward(shape, values[0], dy),
      [&](const std::vector<test::Doubles>& v) { return reference::max_pool(shape, v[0]); });
}

TEST(MaxPoolOperation, GivesTheGradientToTheFirstOfEqualValues) {
  const MaxPoolShape shape{.image = {1, 16, 2, 2}, .kernel = 3, .stride = 2, .padding = 1};
  const ops::MaxPoolSpec spec(shape);
  OperationRun op(1, spec, {ops::native_image(shape.image)});
  op.set_input(0, test::in_blocks(shape.image, std::vector<float>(64, -0.5F)));
  op.forward();
  op.backward(test::in_blocks(shape.output(), std::vector<float>(16, 2.0F)));
  const std::vector<float> dx = test::from_blocks(shape.image, op.dx(0));
  for (size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i], i % 4 == 0 ? 2.0F : 0.0F) << i;
}

TEST(MaxPoolOperation, GivesTheBitsOfItsInputsAlone) {
  for (const MaxPoolShape& shape : max_pool_shapes()) {
    if (shape.image.channels % 16 != 0) continue;
    const ops::MaxPoolSpec spec(shape);
    test::expect_bits_of_inputs_alone(
        {spec, {ops::native_image(shape.image)}, [&](OperationRun& op, int64_t seed) {
           fill_max_pool(op, shape, seed);
         }});
  }
}

TEST(MaxPoolOperation, RefusesAnImageThatIsSmallerThanItsWindow) {
  const MaxPoolShape shape{.image = {1, 1, 2, 1}, .kernel = 2};
  const std::vector inputs{ops::native_image(shape.image)};
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { ops::MaxPoolSpec(shape).check("maxpool", inputs); }),
              testing::HasSubstr("maxpool has images of 2x1"));
}

}  // namespace
}  // namespace pushpull
