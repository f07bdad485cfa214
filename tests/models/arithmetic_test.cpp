// The results of the kernels, computed without a device: 16-bit numbers, splits, and the passes
// over rows, planes and windows, block by block and thread by thread.
#include "models/ops/arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "common/update/block_codec.h"
#include "tests/models/kernel_blocks.h"
#include "tests/models/kernel_numbers.h"
#include "tests/models/reference.h"

namespace pushpull {
namespace {

using namespace blocks;  // NOLINT(google-build-using-namespace)
using numbers::converted;
using numbers::floats;
using numbers::ordinary;
using numbers::values;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
class Arithmetic : public testing::Test {};
using Types = testing::Types<float, Bf16, Fp16>;
TYPED_TEST_SUITE(Arithmetic, Types);

template <class T>
class ShortNumbers : public testing::Test {};
using ShortTypes = testing::Types<Bf16, Fp16>;
TYPED_TEST_SUITE(ShortNumbers, ShortTypes);

TYPED_TEST(ShortNumbers, RoundTripKeepsEachPattern) {
  for (uint32_t bits = 0; bits <= 0xffffU; ++bits) {
    TypeParam number;
    number.bits = static_cast<uint16_t>(bits);
    const float wide = to_float(number);
    if (std::isnan(wide)) {
      EXPECT_EQ(from_float<TypeParam>(wide).bits, 0x7fffU);
    } else {
      ASSERT_EQ(from_float<TypeParam>(wide).bits, bits) << wide;
    }
  }
}

TYPED_TEST(ShortNumbers, RoundToTheNearestAndTiesToEven) {
  // between each two neighbours: the middle, and a little to either side of it
  const auto number = [](uint32_t bits) {
    TypeParam result;
    result.bits = static_cast<uint16_t>(bits);
    return result;
  };
  for (uint32_t bits = 0; bits < 0x7fffU; ++bits) {
    const float low = to_float(number(bits));
    const float high = to_float(number(bits + 1));
    if (!std::isfinite(high)) break;
    const auto middle = static_cast<float>((static_cast<double>(low) + high) / 2.0);
    for (const float sign : {1.0F, -1.0F}) {
      const uint32_t top = sign < 0.0F ? 0x8000U : 0U;
      ASSERT_EQ(from_float<TypeParam>(sign * middle).bits, top | (bits + bits % 2)) << middle;
      ASSERT_EQ(from_float<TypeParam>(sign * std::nextafter(middle, low)).bits, top | bits);
      ASSERT_EQ(from_float<TypeParam>(sign * std::nextafter(middle, high)).bits, top | (bits + 1));
    }
  }
}

TEST(ShortNumbers, OverflowIsInfinite) {
  EXPECT_EQ(to_float(from_float<Fp16>(65519.99F)), 65504.0F);
  EXPECT_EQ(to_float(from_float<Fp16>(65520.0F)), kInfinity);
  EXPECT_EQ(to_float(from_float<Fp16>(-1e30F)), -kInfinity);
  EXPECT_EQ(to_float(from_float<Bf16>(std::numeric_limits<float>::max())), kInfinity);
  EXPECT_EQ(to_float(from_float<Bf16>(-kInfinity)), -kInfinity);
}

TEST(ShortNumbers, EqualTheNumbersOfTheCodecs) {
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const float value = float_of(static_cast<uint32_t>(random()));
    if (!(std::fabs(value) <= 3.38e38F)) continue;  // codecs keep finite values finite
    uint16_t bits = 0;
    to_bf16(&value, 1, &bits);
    ASSERT_EQ(from_float<Bf16>(value).bits, bits) << value;
  }
}

TEST(Cuts, DividerDividesLikeTheProcessor) {
  constexpr uint32_t kMax = INT32_MAX;
  std::mt19937 random(2);
  std::vector<uint32_t> divisors{1, 2, 3, 5, 7, 10, 49, 196, 784, 65535, 65536, 1U << 30, kMax};
  for (int i = 0; i < 300; ++i) divisors.push_back(1 + static_cast<uint32_t>(random()) % kMax);
  for (const uint32_t d : divisors) {
    const Divider divider(d);
    std::vector<uint32_t> dividends{0, 1, d - 1, d, kMax, kMax - 1, kMax / d * d};
    for (int i = 0; i < 300; ++i) {
      const auto n = static_cast<uint32_t>(random()) % kMax;
      dividends.insert(dividends.end(), {n, n / d * d, n / d == 0 ? 0 : n / d * d - 1});
    }
    for (const uint32_t n : dividends) ASSERT_EQ(divider.quotient(n), n / d) << n << "/" << d;
  }
}

TEST(Cuts, SumsAreSplitByShapeIntoChunksThatCoverThem) {
  for (const int64_t size : {1, 2, 31, 128, 129, 4096, 4097, 78400, 784000, 3000000, INT32_MAX}) {
    for (const ReductionPlan plan : {plan_rows(size), plan_channel(size)}) {
      EXPECT_GE(plan.chunk * plan.chunks, size);
      EXPECT_LT(plan.chunk * (plan.chunks - 1), size);
      EXPECT_LE(plan.chunks, 1024);
    }
    EXPECT_EQ(plan_channel(size).chunk % kRound, 0);
  }
  EXPECT_EQ(plan_rows(128).chunks, 1);
  EXPECT_EQ(plan_rows(512).chunks, 8);
}

TYPED_TEST(Arithmetic, RoundTripOverAnImageMovesEachElementOnce) {
  using T = TypeParam;
  for (const ImageShape image :
       {ImageShape{1, 1, 1, 1}, ImageShape{3, 5, 3, 3}, ImageShape{2, 3, 8, 16},
        ImageShape{9, 2, 28, 28}, ImageShape{3, 1, 1001, 1000}, ImageShape{700, 1, 64, 64}}) {
    const ImagePass pass(image);
    const auto size = static_cast<size_t>(image.size());
    std::vector<T> x(size);
    for (size_t i = 0; i < size; ++i) x[i] = from_float<T>(static_cast<float>(i % 251));
    const auto copy = [&]<int kVector>() {
      std::vector<T> y(size);
      std::vector<int> visits(size);
      for_each_round(pass, [&](const ImagePass::Block& block, uint32_t first, uint32_t t) {
        float values[kPerThread];
        load_round<kVector>(x.data(), pass, block, first, t, values);
        store_round<kVector>(values, pass, block, first, t, y.data());
        for (int i = 0; i < kPerThread; ++i) {
          const uint32_t place = place_of<T>(first, t, i);
          if (place < block.last)
            ++visits[static_cast<size_t>(pass.offset(block.channel, place))];
          else
            ASSERT_EQ(values[i], 0.0F);
        }
      });
      EXPECT_EQ(floats(y), floats(x));
      EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](int n) { return n == 1; }));
    };
    copy.template operator()<1>();
    const int vector = pass.template vector<T>(true);
    if (vector >= kPackSize<T> / 2) copy.template operator()<kPackSize<T> / 2>();
    if (vector == kPackSize<T>) copy.template operator()<kPackSize<T>>();
  }
}

// Shapes of one chunk and of several, with whole packs and without.
const std::vector<LinearShape>& linears() {
  static const std::vector<LinearShape> shapes{
      {1, 1, 1, true},      {7, 1, 10, true},     {100, 1, 10, true},
      {128, 1, 264, true},  {129, 1, 33, true},   {512, 1, 520, true},
      {1000, 1, 10, false}, {200, 1, 136, false}, {5'001, 1, 3, false}};
  return shapes;
}

TYPED_TEST(Arithmetic, MasksAndSumsRows) {
  using T = TypeParam;
  for (const LinearShape& shape : linears()) {
    const int64_t count = shape.samples * shape.outputs;
    const std::vector<T> y = converted<T>(ordinary(count, 1));
    const std::vector<T> dy = converted<T>(ordinary(count, 2));
    const auto g = reference::linear_backward(
        shape, values(std::vector<float>(static_cast<size_t>(shape.samples))),
        values(std::vector<float>(static_cast<size_t>(shape.outputs))), values(y), values(dy));
    const auto run = [&]<bool kPacked>(std::vector<float>& db) {
      std::vector<T> masked = dy;
      db = shape.relu ? mask_and_sum<T, kPacked, true>(shape.samples, shape.outputs, y.data(),
                                                       masked.data(), 0.25F)
                      : mask_and_sum<T, kPacked, false>(shape.samples, shape.outputs, y.data(),
                                                        masked.data(), 0.25F);
      for (size_t i = 0; i < masked.size(); ++i) {
        const bool passes = !shape.relu || to_float(y[i]) > 0.0F;
        ASSERT_EQ(to_float(masked[i]), passes ? to_float(dy[i]) : 0.0F) << i;
      }
      for (size_t m = 0; m < db.size(); ++m) {
        // f32 sums of values of at most 1: a few percent of the bound in practice
        ASSERT_NEAR(db[m], 0.25 * g.db[m], 1e-7 * static_cast<double>(shape.samples)) << m;
      }
    };
    std::vector<float> one_by_one;
    run.template operator()<false>(one_by_one);
    if (shape.outputs % kPackSize<T> != 0) continue;
    std::vector<float> packed;
    run.template operator()<true>(packed);
    EXPECT_EQ(packed, one_by_one);  // 16-byte loads change no bit
  }
}

TEST(Elementwise, ClosedMaskDropsNonFiniteValues) {
  const std::vector<float> y{1.0F, 0.0F, -0.0F, -1.0F, kNan, 1.0F, kInfinity};
  std::vector<float> dy{kNan, kInfinity, kNan, kNan, kInfinity, 2.0F, 3.0F};
  mask_and_sum<float, false, true>(1, 7, y.data(), dy.data(), 1.0F);
  EXPECT_TRUE(std::isnan(dy[0]));
  EXPECT_THAT(std::vector<float>(dy.begin() + 1, dy.end()),
              testing::ElementsAre(0.0F, 0.0F, 0.0F, 0.0F, 2.0F, 3.0F));
  EXPECT_TRUE(std::isnan(relu(kNan)));
  EXPECT_EQ(relu(-kInfinity), 0.0F);
}

TYPED_TEST(Arithmetic, SumsChannelsOfImages) {
  using T = TypeParam;
  for (const ImageShape image : {ImageShape{1, 3, 1, 1}, ImageShape{9, 5, 7, 7},
                                 ImageShape{100, 4, 14, 14}, ImageShape{600, 2, 64, 64}}) {
    const std::vector<T> dy = converted<T>(ordinary(image.size(), 3));
    reference::Values want(static_cast<size_t>(image.channels));
    reference::for_each_element(image,
                                [&](size_t c, size_t i) { want[c] += 0.5 * to_float(dy[i]); });
    const auto sums = sum_channels<T, 1>(image, dy.data(), 0.5F);
    const int64_t places = image.size() / image.channels;
    for (size_t c = 0; c < want.size(); ++c)
      ASSERT_NEAR(sums[c], want[c], 1e-7 * static_cast<double>(places));
    if (image.height * image.width % kPackSize<T> == 0) {
      EXPECT_EQ((sum_channels<T, kPackSize<T>>(image, dy.data(), 0.5F)), sums);
    }
  }
}

TYPED_TEST(Arithmetic, AddsABiasToEachChannel) {
  using T = TypeParam;
  for (const ImageShape image :
       {ImageShape{1, 1, 1, 1}, ImageShape{3, 5, 3, 3}, ImageShape{4, 6, 8, 20}}) {
    const std::vector<T> y = converted<T>(ordinary(image.size(), 4));
    const std::vector<float> b = ordinary(image.channels, 5);
    std::vector<float> want(y.size());
    reference::for_each_element(
        image, [&](size_t c, size_t i) { want[i] = rounded<T>(to_float(y[i]) + b[c]); });
    const auto run = [&]<bool kPacked>() {
      std::vector<T> sum = y;
      for_each_flat(image.size(), [&](int64_t block, int t) {
        add_channels<T, kPacked>(Divider(image.height * image.width), Divider(image.channels),
                                 image.size(), block, t, b.data(), sum.data());
      });
      EXPECT_EQ(floats(sum), want);
    };
    run.template operator()<false>();
    run.template operator()<true>();
  }
}

TYPED_TEST(Arithmetic, ConvertsEachElementAndNoneAfterTheLast) {
  using T = TypeParam;
  for (const int64_t count : {1, 7, 8, 9, 4095, 4096, 4097, 10001}) {
    const std::vector<float> from = ordinary(count, 6);
    const auto run = [&]<bool kPacked>() {
      std::vector<T> to(static_cast<size_t>(count) + 1, from_float<T>(9.0F));
      std::vector<float> back(static_cast<size_t>(count) + 1, 9.0F);
      for_each_flat(count, [&](int64_t block, int t) {
        convert<float, T, kPacked>(from.data(), count, block, t, to.data());
      });
      for_each_flat(count, [&](int64_t block, int t) {
        convert<T, float, kPacked>(to.data(), count, block, t, back.data());
      });
      for (size_t i = 0; i < from.size(); ++i) ASSERT_EQ(back[i], rounded<T>(from[i]));
      EXPECT_EQ(to_float(to.back()), 9.0F);
      EXPECT_EQ(back.back(), 9.0F);
    };
    run.template operator()<false>();
    run.template operator()<true>();
  }
}

// Runs forward and backward of max pooling with `kColumns` columns per thread. All outputs start as
// NaN and must be overwritten.
template <int kColumns, class T>
std::pair<std::vector<float>, std::vector<float>> pool(const MaxPoolShape& shape,
                                                       const std::vector<T>& x,
                                                       const std::vector<T>& dy) {
  const PoolPass pass(shape, kColumns);
  std::vector<uint8_t> winners(dy.size(), 9);
  std::vector<T> y(dy.size(), from_float<T>(kNan));
  std::vector<T> dx(x.size(), from_float<T>(kNan));
  for (uint32_t u = 0; u < pass.units; ++u) {
    pool_forward<kColumns>(pass, u, x.data(), y.data(), winners.data());
  }
  for (uint32_t u = 0; u < pass.units; ++u) {
    pool_backward<kColumns>(pass, u, dy.data(), winners.data(), dx.data());
  }
  return {floats(y), floats(dx)};
}

TYPED_TEST(Arithmetic, MaxPoolEqualsItsReference) {
  using T = TypeParam;
  for (const ImageShape image :
       {ImageShape{1, 1, 2, 2}, ImageShape{2, 3, 6, 6}, ImageShape{2, 2, 7, 5},
        ImageShape{3, 3, 5, 8}, ImageShape{3, 2, 4, 9}, ImageShape{2, 4, 28, 28},
        ImageShape{1, 2, 9, 16}}) {
    const MaxPoolShape shape{image};
    // few values, so that many windows have ties
    std::vector<float> few = ordinary(image.size(), 7);
    for (float& value : few) value = std::floor(value * 2.0F);
    for (const std::vector<T>& x : {converted<T>(ordinary(image.size(), 8)), converted<T>(few)}) {
      const std::vector<T> dy = converted<T>(ordinary(shape.output().size(), 9));
      const auto y = reference::max_pool(shape, values(x));
      const auto dx = reference::max_pool_backward(shape, values(x), values(dy));
      const auto check = [&](const auto& got) {
        EXPECT_EQ(values(got.first), y);
        EXPECT_EQ(values(got.second), dx);
      };
      const int columns = pool_columns(image.width, kPackSize<T>, true);
      check(pool<1>(shape, x, dy));
      if (columns >= 2) check(pool<2>(shape, x, dy));
      if (columns >= 4) check(pool<4>(shape, x, dy));
      if constexpr (kPackSize<T> == 8) {
        if (columns == 8) check(pool<8>(shape, x, dy));
      }
    }
  }
  EXPECT_EQ(pool_columns(28, 4, true), 4);
  EXPECT_EQ(pool_columns(28, 8, true), 4);
  EXPECT_EQ(pool_columns(14, 4, true), 2);
  EXPECT_EQ(pool_columns(7, 8, true), 1);
  EXPECT_EQ(pool_columns(28, 4, false), 1);
}

TEST(Elementwise, NanWinsInMaxPool) {
  const std::vector<float> x{1.0F, kNan, 3.0F, kNan};
  const auto got = pool<2, float>({{1, 1, 2, 2}}, x, {5.0F});
  EXPECT_TRUE(std::isnan(got.first[0]));
  EXPECT_THAT(got.second, testing::ElementsAre(0.0F, 5.0F, 0.0F, 0.0F));
}

}  // namespace
}  // namespace pushpull
