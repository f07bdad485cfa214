#include <gtest/gtest.h>

#include "models/ops/pool.h"
#include "tests/models/ops/blocks.h"
#include "tests/models/ops/differences.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull {
namespace {

using test::OperationRun;

const std::vector<ops::ImageShape> kAveragedImages = {
    {2, 16, 7, 7}, {3, 5, 1, 1}, {1, 37, 3, 5}, {64, 512, 4, 4}};

test::Doubles means_of(const ops::ImageShape& image, const test::Doubles& x) {
  const auto area = static_cast<size_t>(image.height * image.width);
  test::Doubles means(x.size() / area);
  for (size_t i = 0; i < x.size(); ++i) means[i / area] += x[i] / static_cast<double>(area);
  return means;
}

test::Doubles spread(const ops::ImageShape& image, const test::Doubles& dy) {
  const auto area = static_cast<size_t>(image.height * image.width);
  test::Doubles dx;
  for (const double value : dy) dx.insert(dx.end(), area, value / static_cast<double>(area));
  return dx;
}

TEST(AveragePoolOperation, AgreesWithALoopInDouble) {
  for (const ops::ImageShape& image : kAveragedImages) {
    const ops::AveragePoolSpec spec(image);
    OperationRun op(1, spec, {ops::native_image(image)});
    const std::vector<float> x = test::numbers(image.size(), 1);
    op.set_input(0, test::in_blocks(image, x));
    test::expect_close("y", op.forward(), means_of(image, test::doubles(x)), 1e-6);
    const std::vector<float> dy = test::numbers(image.samples * image.channels, 2);
    op.backward(dy);
    const test::Doubles dx = spread(image, test::doubles(dy));
    test::expect_close("dx", test::from_blocks(image, op.dx(0)), dx, 1e-6);
    double sum = 0.0;  // the padding is zero
    for (const float value : op.dx(0)) sum += std::fabs(static_cast<double>(value));
    double expected = 0.0;
    for (const double value : dx) expected += std::fabs(value);
    EXPECT_NEAR(sum, expected, 1e-5 * expected);
  }
}

TEST(AveragePoolOperation, TheLoopHasTheGradientOfItsOutput) {
  const ops::ImageShape image{2, 3, 2, 5};
  const std::vector<test::Doubles> values{test::doubles(test::numbers(60, 1))};
  const test::Doubles dy = test::doubles(test::numbers(6, 2));
  test::expect_differences(
      values, 0, dy, spread(image, dy),
      [&](const std::vector<test::Doubles>& v) { return means_of(image, v[0]); });
}

TEST(AveragePoolOperation, GivesTheBitsOfItsInputsAlone) {
  for (const ops::ImageShape& image : kAveragedImages) {
    const ops::AveragePoolSpec spec(image);
    test::expect_bits_of_inputs_alone(
        {spec, {ops::native_image(image)}, [&](OperationRun& op, int64_t seed) {
           op.set_input(0, test::in_blocks(image, test::numbers(image.size(), seed)));
         }});
  }
}

}  // namespace
}  // namespace pushpull
