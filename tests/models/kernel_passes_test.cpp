// Compares batch normalisation and cross-entropy of the kernels, computed block by block and thread
// by thread, with plain loops in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/models/kernel_blocks.h"
#include "tests/models/kernel_numbers.h"
#include "tests/models/reference.h"

namespace pushpull {
namespace {

using namespace blocks;  // NOLINT(google-build-using-namespace)
using numbers::converted;
using numbers::floats;
using numbers::ordinary;
using numbers::roundoff;
using numbers::values;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
class Passes : public testing::Test {};
using Types = testing::Types<float, Bf16, Fp16>;
TYPED_TEST_SUITE(Passes, Types);

// Compares relative to the largest value, since a sum may cancel to zero. The tolerance is the
// rounding to `Stored` and of f32 sums of `terms` values in a tree of about 24 levels.
template <class Stored>
void expect_close(const char* what, const std::vector<float>& got, const reference::Values& want,
                  double terms) {
  double largest = 1e-3;
  for (const double value : want) largest = std::max(largest, std::fabs(value));
  const double tolerance = (roundoff<Stored>() + 0x1p-24 * (24.0 + terms)) * largest;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance) << what << "[" << i << "]";
  }
}

struct BatchNormCase {
  ImageShape image;
  bool relu;
};
const std::vector<BatchNormCase>& batch_norms() {
  static const std::vector<BatchNormCase> cases{{{3, 16, 5, 4}, true},   {{2, 7, 1, 1}, false},
                                                {{2, 5, 3, 3}, true},    {{10, 3, 28, 28}, false},
                                                {{30, 2, 14, 14}, true}, {{2100, 1, 32, 32}, true}};
  return cases;
}

template <class T, int kVector>
BatchNormKernels<T, kVector> run_batch_norm(const BatchNormShape& shape, const std::vector<T>& x,
                                            const std::vector<T>& dy,
                                            const std::vector<float>& scale,
                                            const std::vector<float>& shift, std::vector<T>& y,
                                            std::vector<T>& dx) {
  BatchNormKernels<T, kVector> kernels(shape);
  y.assign(x.size(), from_float<T>(kNan));
  dx.assign(x.size(), from_float<T>(kNan));
  kernels.forward(x.data(), scale.data(), shift.data(), y.data());
  kernels.backward(x.data(), dy.data(), scale.data(), shift.data(), 0.5F, dx.data());
  return kernels;
}

TYPED_TEST(Passes, BatchNormEqualsItsReference) {
  using T = TypeParam;
  for (const BatchNormCase& c : batch_norms()) {
    const BatchNormShape shape{.image = c.image, .relu = c.relu};
    const std::vector<T> x = converted<T>(ordinary(c.image.size(), 1));
    const std::vector<T> dy = converted<T>(ordinary(c.image.size(), 4));
    const std::vector<float> scale = ordinary(c.image.channels, 2);
    const std::vector<float> shift = ordinary(c.image.channels, 3);
    const auto out = reference::batch_norm(shape, values(x), values(scale), values(shift));
    const auto g = reference::batch_norm_backward(shape, values(x), values(scale), out, values(dy));

    std::vector<T> y;
    std::vector<T> dx;
    const auto got = run_batch_norm<T, 1>(shape, x, dy, scale, shift, y, dx);
    const auto places = static_cast<double>(got.pass.places);
    // With two values per channel a gradient almost cancels, and if they are close, 1 /
    // sqrt(variance) magnifies their rounding.
    const double close = places < 10 ? 4000.0 : 20.0;
    reference::Values unbiased = out.variance;
    for (double& value : unbiased) value *= out.unbiased;
    reference::Values dscale = g.dw;
    reference::Values dshift = g.db;
    for (double& value : dscale) value *= 0.5;
    for (double& value : dshift) value *= 0.5;
    expect_close<float>("mean", got.mean, out.mean, 4.0);
    expect_close<float>("variance", got.variance, unbiased, 4.0);
    expect_close<T>("y", floats(y), out.y, close);
    expect_close<float>("dscale", got.dscale, dscale, close + std::sqrt(places));
    expect_close<float>("dshift", got.dshift, dshift, close + std::sqrt(places));
    expect_close<T>("dx", floats(dx), g.dx, close);

    // the width of loads changes no bit
    const auto with_vector = [&]<int kVector>() {
      std::vector<T> other_y;
      std::vector<T> other_dx;
      const auto other = run_batch_norm<T, kVector>(shape, x, dy, scale, shift, other_y, other_dx);
      EXPECT_EQ(floats(other_y), floats(y));
      EXPECT_EQ(floats(other_dx), floats(dx));
      EXPECT_EQ(other.mean, got.mean);
      EXPECT_EQ(other.variance, got.variance);
      EXPECT_EQ(other.dscale, got.dscale);
      EXPECT_EQ(other.dshift, got.dshift);
    };
    const int vector = got.pass.template vector<T>(true);
    if (vector >= kPackSize<T> / 2) with_vector.template operator()<kPackSize<T> / 2>();
    if (vector == kPackSize<T>) with_vector.template operator()<kPackSize<T>>();
  }
}

TYPED_TEST(Passes, BatchNormInfersWithGivenStatistics) {
  using T = TypeParam;
  const BatchNormShape shape{.image = {3, 6, 5, 4}, .relu = true};
  const std::vector<T> x = converted<T>(ordinary(shape.image.size(), 1));
  const std::vector<float> scale = ordinary(6, 2);
  const std::vector<float> shift = ordinary(6, 3);
  const std::vector<float> mean = ordinary(6, 4);
  std::vector<float> variance = ordinary(6, 5);
  for (float& value : variance) value += 1.5F;
  BatchNormKernels<T, 1> kernels(shape);
  std::vector<T> y(x.size());
  kernels.infer(x.data(), scale.data(), shift.data(), mean.data(), variance.data(), y.data());
  expect_close<T>("y", floats(y),
                  reference::normalize(shape, values(x), values(scale), values(shift), values(mean),
                                       values(variance)),
                  4.0);
}

TEST(BatchNormPass, VarianceFarBelowTheMeanKeepsItsDigits) {
  const ImageShape image{20, 2, 28, 28};
  std::vector<float> x = ordinary(image.size(), 1);
  for (float& value : x) value = 1000.0F + value;
  x[0] = -1e3F;  // an outlier: the first value is far from the others
  const BatchNormShape shape{.image = image};
  const std::vector<float> one(2, 1.0F);
  const auto out = reference::batch_norm(shape, values(x), values(one), values(one));
  BatchNormKernels<float, 4> kernels(shape);
  std::vector<float> y(x.size());
  kernels.forward(x.data(), one.data(), one.data(), y.data());
  for (size_t c = 0; c < 2; ++c) {
    EXPECT_NEAR(kernels.mean[c], out.mean[c], 1e-7 * out.mean[c]);
    EXPECT_NEAR(kernels.variance[c], out.variance[c] * out.unbiased, 1e-6 * out.variance[c]);
  }
}

TEST(BatchNormPass, MomentsOfPartsMergeToThoseOfTheWhole) {
  const Moments a{2.0, 3.0, 2.0};  // 2, 4
  const Moments b{3.0, 6.0, 8.0};  // 4, 6, 8
  const Moments all = merge(a, b);
  EXPECT_EQ(all.count, 5.0);
  EXPECT_DOUBLE_EQ(all.mean, 4.8);
  EXPECT_DOUBLE_EQ(all.squares, 20.8);
  EXPECT_EQ(merge({}, a).squares, 2.0);
  EXPECT_EQ(merge(a, {}).mean, 3.0);
}

TEST(BatchNormPass, NanAffectsOnlyItsChannel) {
  const BatchNormShape shape{.image = {3, 2, 5, 5}, .relu = true};
  std::vector<float> x = ordinary(shape.image.size(), 1);
  x[30] = kNan;  // in channel 1
  const std::vector<float> one(2, 1.0F);
  std::vector<float> y(x.size());
  BatchNormKernels<float, 1> kernels(shape);
  kernels.forward(x.data(), one.data(), one.data(), y.data());
  reference::for_each_element(shape.image,
                              [&](size_t c, size_t i) { EXPECT_EQ(std::isnan(y[i]), c == 1); });
}

// Forward and backward of rows of logits, in blocks and threads.
template <class T>
struct Crossed {
  std::vector<float> losses, gradients;
};
template <class T, bool kPacked>
Crossed<T> cross_entropy(int64_t classes, const std::vector<T>& logits,
                         const std::vector<int32_t>& labels, int width, float scale) {
  Crossed<T> out;
  std::vector<KeptRow> kept;
  for (size_t n = 0; n < labels.size(); ++n) {
    const T* row = logits.data() + static_cast<int64_t>(n) * classes;
    const RowPart whole = whole_row<kPacked>(row, classes, width, static_cast<int64_t>(n));
    out.losses.push_back(loss_of(whole, to_float(row[labels[n]]), classes, 0.0F));
    kept.push_back(kept_of(whole));
  }
  std::vector<T> d(logits.size(), from_float<T>(kNan));
  const float weight = 1.0F / static_cast<float>(labels.size()) * scale;
  find_gradients<kPacked>(logits.data(), labels, kept, classes, {}, weight, width, d.data());
  out.gradients = floats(d);
  return out;
}

TYPED_TEST(Passes, CrossEntropyEqualsItsReference) {
  using T = TypeParam;
  for (const int64_t classes : {1, 2, 10, 33, 100, 1000, 3000, 5003}) {
    constexpr int64_t kSamples = 9;
    std::vector<float> wide = ordinary(kSamples * classes, 1);
    for (float& value : wide) value *= 10.0F;
    const std::vector<T> logits = converted<T>(wide);
    std::vector<int32_t> labels;
    for (int64_t n = 0; n < kSamples; ++n) {
      labels.push_back(static_cast<int32_t>(n * 7 % classes));
    }
    const auto losses = reference::cross_entropy(classes, values(logits), labels);
    auto gradients = reference::cross_entropy_backward(classes, values(logits), labels);
    for (double& value : gradients) value *= 256.0;
    for (const int width : {kWarp, kBlock}) {
      const auto got = cross_entropy<T, false>(classes, logits, labels, width, 256.0F);
      expect_close<float>("losses", got.losses, losses, 4.0);
      expect_close<T>("dlogits", got.gradients, gradients, 4.0);
      const auto packed = cross_entropy<T, true>(classes, logits, labels, width, 256.0F);
      EXPECT_EQ(packed.losses, got.losses);
      EXPECT_EQ(packed.gradients, got.gradients);
    }
  }
}

// Packs are those of the tensor: rows share packs, and a row may lie within one.
TYPED_TEST(Passes, CrossEntropyReadsEachScoreOnce) {
  using T = TypeParam;
  constexpr int kCount = kPackSize<T>;
  for (const int64_t classes : {1, 3, 8, 13, 1000, 2051}) {
    for (int64_t row = 0; row < 2 * kCount; ++row) {
      for (const int threads : {kWarp, kBlock}) {
        std::vector<int> reads(static_cast<size_t>(classes));
        for (int t = 0; t < threads; ++t) {
          for_each_score<kCount>(
              row, classes, t, threads,
              [&](int64_t first) {
                ASSERT_EQ((row * classes + first) % kCount, 0);
                for (int64_t i = 0; i < kCount; ++i) ++reads.at(static_cast<size_t>(first + i));
              },
              [&](int64_t i) { ++reads.at(static_cast<size_t>(i)); });
        }
        ASSERT_THAT(reads, testing::Each(1)) << classes << ", row " << row;
      }
    }
  }
}

TEST(CrossEntropyPass, LossOfACertainSampleIsExactlyZero) {
  const auto got = cross_entropy<float, false>(3, {7.0F, -200.0F, -300.0F}, {0}, kWarp, 1.0F);
  EXPECT_EQ(got.losses[0], 0.0F);
  EXPECT_THAT(got.gradients, testing::Each(0.0F));
}

TEST(CrossEntropyPass, ExcludedScoresBeforeTheFirstOtherCountNothing) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::vector<float> logits(300, kNone);
  logits[200] = 1.0F;
  logits[299] = 3.0F;
  for (const int width : {kWarp, kBlock}) {
    const auto got = cross_entropy<float, true>(300, logits, {200}, width, 1.0F);
    EXPECT_NEAR(got.losses[0], 2.0 + std::log1p(std::exp(-2.0)), 1e-6);
    EXPECT_EQ(got.gradients[0], 0.0F);
    EXPECT_EQ(whole_row(logits.data(), 300, width).label, 299);
  }
}

TEST(CrossEntropyPass, LossOfHugeLogitsIsFiniteAndOfNanIsNan) {
  const auto got = cross_entropy<float, false>(
      3, {1e4F, -1e4F, 0.0F, 1e30F, 1e30F, -1e30F, 0.0F, kNan, 1.0F}, {1, 0, 0}, kWarp, 1.0F);
  EXPECT_FLOAT_EQ(got.losses[0], 2e4F);
  EXPECT_FLOAT_EQ(got.losses[1], std::log(2.0F));
  EXPECT_TRUE(std::isnan(got.losses[2]));
}

TYPED_TEST(Passes, PredictionIsTheLowestOfEqualLogits) {
  using T = TypeParam;
  for (const int width : {kWarp, kBlock}) {
    EXPECT_EQ(whole_row(converted<T>({1, 3, 3, 2}).data(), 4, width).label, 1);
    EXPECT_EQ(whole_row(converted<T>({5, 5, 5, 5}).data(), 4, width).label, 0);
    EXPECT_EQ(whole_row(converted<T>({-4, -3, -2, -2}).data(), 4, width).label, 2);
    EXPECT_EQ(whole_row(converted<T>({kNan}).data(), 1, width).label, 0);
    std::vector<float> many(2000, 1.0F);
    many[1999] = 2.0F;
    EXPECT_EQ(whole_row(converted<T>(many).data(), 2000, width).label, 1999);
    many[700] = many[300] = 2.0F;
    EXPECT_EQ(whole_row(converted<T>(many).data(), 2000, width).label, 300);
    const float least = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(whole_row(converted<T>(std::vector<float>(40, least)).data(), 40, width).label, 0);
  }
}

}  // namespace
}  // namespace pushpull
