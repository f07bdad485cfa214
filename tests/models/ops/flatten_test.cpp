#include <gtest/gtest.h>

#include "common/base/error.h"
#include "models/ops/pointwise.h"
#include "tests/models/ops/blocks.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull {
namespace {

using test::OperationRun;

const std::vector<ops::ImageShape> kFlattenedImages = {{2, 16, 7, 7}, {3, 5, 1, 1}, {1, 37, 3, 5}};

TEST(FlattenOperation, CopiesEachElementToItsPlaceAndBack) {
  for (const ops::ImageShape& image : kFlattenedImages) {
    const ops::FlattenSpec spec(image);
    OperationRun op(1, spec, {ops::native_image(image)});
    const std::vector<float> x = test::numbers(image.size(), 1);
    op.set_input(0, test::in_blocks(image, x));
    EXPECT_EQ(op.forward(), x);
    const std::vector<float> dy = test::numbers(image.size(), 2);
    op.backward(dy);
    EXPECT_EQ(test::from_blocks(image, op.dx(0)), dy);
  }
}

TEST(FlattenOperation, GivesTheBitsOfItsInputsAlone) {
  for (const ops::ImageShape& image : kFlattenedImages) {
    const ops::FlattenSpec spec(image);
    test::expect_bits_of_inputs_alone(
        {spec, {ops::native_image(image)}, [&](OperationRun& op, int64_t seed) {
           op.set_input(0, test::in_blocks(image, test::numbers(image.size(), seed)));
         }});
  }
}

TEST(ElementsOperation, IsAViewOfTheFloatsOfAField) {
  const ops::ElementsSpec spec({3, 5});
  const auto backend = ops::make_cpu_backend(1);
  const auto op = backend->plan(spec);
  const std::vector<float> field = test::numbers(15, 1);
  ops::Run run;
  run.x[0].data = field.data();
  EXPECT_TRUE(op->needs().is_view);
  EXPECT_EQ(op->view(run), field.data());
}

TEST(ElementsOperation, RefusesAnEmptyField) {
  const std::vector<ops::ValueType> inputs{{ops::Element::kFloat, ops::Layout::kPlain, {0}}};
  EXPECT_THROW(ops::ElementsSpec(ops::Shape{0}).check("x", inputs), Error);
}

}  // namespace
}  // namespace pushpull
