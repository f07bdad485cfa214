#include <gtest/gtest.h>

#include "common/base/random.h"
#include "models/ops/pointwise.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull {
namespace {

using test::numbers;
using test::OperationRun;

constexpr uint64_t kKey = 0x0123456789abcdef;

// Returns what becomes of `x`, by the definition.
std::vector<float> dropped(const std::vector<float>& x, float probability) {
  std::vector<float> y;
  const double p = static_cast<double>(probability);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool kept = static_cast<double>(dropout_words(kKey, i / 4)[i % 4]) >= p * 0x1p32;
    y.push_back(kept ? x[i] * static_cast<float>(1.0 / (1.0 - p)) : 0.0F);
  }
  return y;
}

TEST(DropoutOperation, DropsTheElementsOfItsKeyInBothDirections) {
  for (const int64_t count : {1, 3, 1'023, 1'025, 9'001}) {
    for (const float p : {0.0F, 0.1F, 0.5F, 0.999F}) {
      const ops::DropoutSpec spec(p, {count});
      OperationRun op(1, spec, {spec.output()});
      op.run.key = &kKey;
      op.set_input(0, numbers(count, 1));
      EXPECT_TRUE(test::same_bits(op.forward(), dropped(numbers(count, 1), p)))
          << count << " " << p;
      op.backward(numbers(count, 2));
      EXPECT_TRUE(test::same_bits(op.dx(0), dropped(numbers(count, 2), p))) << count << " " << p;
    }
  }
}

TEST(DropoutOperation, EvaluatesWithoutDroppingAndWithoutAKey) {
  const ops::DropoutSpec spec(0.5F, {5});
  OperationRun op(1, spec, {spec.output()});
  op.run.training = false;
  op.set_input(0, {1, 2, 3, 4, 5});
  EXPECT_EQ(op.forward(), (std::vector<float>{1, 2, 3, 4, 5}));
}

TEST(DropoutOperation, HasBitsOfItsInputsAlone) {
  static constexpr uint64_t kKeys[] = {kKey, kKey + 1};
  for (const int64_t count : {1, 1'025, 20'011}) {
    const ops::DropoutSpec spec(0.3F, {count});
    test::expect_bits_of_inputs_alone(
        {.spec = spec, .inputs = {spec.output()}, .fill = [count](OperationRun& op, int64_t seed) {
           op.run.key = &kKeys[seed - 1];
           op.set_input(0, numbers(count, seed));
         }});
  }
}

}  // namespace
}  // namespace pushpull
