// Conversions between floats and bf16 activations, and their operation. The other operations are
// compared with f32 by expect_bits_of_inputs_alone in their own tests.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "models/ops/cpu/activations.h"
#include "models/ops/pointwise.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull {
namespace {

using ops::Bf16;

#define PP_NEED_BF16()                                                                        \
  if (!ops::cpu_has_bf16()) {                                                                 \
    GTEST_SKIP() << "no operation is tested in bf16: this processor has neither AVX512_BF16 " \
                    "nor AMX-BF16 (or DNNL_MAX_CPU_ISA hides it)";                            \
  }                                                                                           \
  static_assert(true)

TEST(Bf16, IsTestedOnThisProcessor) { PP_NEED_BF16(); }

// Bits of all exponents and of both sides of each tie.
std::vector<float> floats_of_all_kinds() {
  std::vector<float> out;
  for (uint32_t high = 0; high < 0x10000U; high += 7) {
    for (const uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      out.push_back(std::bit_cast<float>(high << 16U | low));
    }
  }
  return out;
}

TEST(Bf16, NarrowRoundsToTheNearestAndSubnormalsToZero) {
  PP_NEED_BF16();
  const std::vector<float> floats = floats_of_all_kinds();
  std::vector<Bf16> got(floats.size());
  ops::cpu::narrow(floats.data(), std::ssize(floats), got.data());
  for (size_t i = 0; i < floats.size(); ++i) {
    const float value = ops::to_float(got[i]);
    if (std::isnan(floats[i])) {
      ASSERT_TRUE(std::isnan(value)) << i;
    } else if (std::fpclassify(floats[i]) == FP_SUBNORMAL) {
      ASSERT_EQ(value, 0.0F) << floats[i];
    } else {
      ASSERT_EQ(got[i].bits, ops::from_float<Bf16>(floats[i]).bits) << floats[i];
    }
  }
}

TEST(Bf16, NarrowAndWidenKeepToTheirElements) {
  PP_NEED_BF16();
  for (int64_t n = 0; n < 50; ++n) {
    const std::vector<float> floats = test::numbers(n, 1);
    std::vector<Bf16> shorts(static_cast<size_t>(n) + 1, Bf16{0x1234});
    std::vector<float> back(static_cast<size_t>(n) + 1, 7.0F);
    ops::cpu::narrow(floats.data(), n, shorts.data());
    ops::cpu::widen(shorts.data(), n, back.data());
    for (size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(back[i], ops::rounded<Bf16>(floats[i])) << n << ", " << i;
    }
    ASSERT_EQ(shorts.back().bits, 0x1234);
    ASSERT_EQ(back.back(), 7.0F);
  }
}

TEST(ElementsOperation, RoundsAFieldToBf16) {
  PP_NEED_BF16();
  constexpr int64_t kCount = 40'001;
  const ops::ElementsSpec spec(ops::Shape{kCount});
  test::OperationRun op(2, spec, {{ops::Element::kFloat, ops::Layout::kPlain, {kCount}}}, 1,
                        ops::Precision::kBf16);
  const std::vector<float> x = test::numbers(kCount, 3);
  op.set_input(0, x);
  const std::vector<float> y = op.forward();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], ops::rounded<Bf16>(x[i])) << i;
}

}  // namespace
}  // namespace pushpull
