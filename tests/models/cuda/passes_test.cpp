// Compares the per-thread arithmetic of the kernels in models/ops/cuda (pointwise_pass.h, pool_pass.h,
// head_pass.h), run block by block and thread by thread, with the CPU's operations and with plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/ops/cuda/head_pass.h"
#include "models/ops/cuda/pointwise_pass.h"
#include "models/ops/cuda/pool_pass.h"
#include "models/ops/losses.h"
#include "models/ops/pointwise.h"
#include "models/ops/pool.h"
#include "tests/models/kernel_blocks.h"
#include "tests/models/kernel_numbers.h"
#include "tests/models/ops/operation_run.h"
#include "tests/models/reference.h"

namespace pushpull {
namespace {

using namespace blocks;  // NOLINT(google-build-using-namespace)
using numbers::converted;
using numbers::floats;
using numbers::ordinary;
using test::OperationRun;

template <class T>
class OperationPasses : public testing::Test {
 protected:
  // Returns different numbers that T represents exactly.
  static std::vector<float> exact(int64_t count, int64_t seed, float times = 1.0F) {
    std::vector<float> out = ordinary(count, seed);
    for (float& value : out) value = rounded<T>(value * times);
    return out;
  }
  static std::vector<float> stored(std::vector<float> values) {
    for (float& value : values) value = rounded<T>(value);
    return values;
  }
  // Runs `pass(block, thread, output)` over all threads; every element must be written.
  template <class Pass>
  static std::vector<float> flat(int64_t count, const Pass& pass) {
    std::vector<T> out(static_cast<size_t>(count), from_float<T>(test::kPoison));
    for_each_flat(count, [&](int64_t block, int thread) { pass(block, thread, out.data()); });
    return floats(out);
  }
};
using Types = testing::Types<float, Bf16, Fp16>;
TYPED_TEST_SUITE(OperationPasses, Types);

constexpr std::array<int64_t, 4> kCounts{1, 7, 4'096, 9'001};

template <class T, class F, bool kPacked>
void expect_activation(Function function, int64_t count, const std::vector<float>& x,
                       const std::vector<float>& dy) {
  const ActivateSpec spec(function, {count});
  OperationRun cpu(1, spec, {spec.output()});
  cpu.set_input(0, x);
  const std::vector<T> from = converted<T>(x);
  std::vector<T> y(from.size());
  for_each_flat(count, [&](int64_t block, int thread) {
    activate<F, T, kPacked>(from.data(), count, block, thread, y.data());
  });
  const std::vector<float> want = cpu.forward();
  EXPECT_EQ(floats(y), floats(converted<T>(want)));
  // the gradient of a function of its output is that of the stored output
  if (F::kFromOutput) std::ranges::copy(floats(y), cpu.run.y.floats());
  cpu.put_gradient_in_place();
  ops::Run run = cpu.run;
  std::vector<float> copy = dy;
  run.dy.data = run.dx[0].data = copy.data();
  ops::make_cpu_backend(1)->plan(spec)->backward_data(run);
  std::vector<T> dx = converted<T>(dy);
  for_each_flat(count, [&](int64_t block, int thread) {
    activate_gradients<F, T, kPacked>(F::kFromOutput ? y.data() : from.data(), dx.data(), count,
                                      block, thread, dx.data());
  });
  EXPECT_EQ(floats(dx), floats(converted<T>(copy)));
}

TYPED_TEST(OperationPasses, ActivateHasTheBitsOfTheCpu) {
  using T = TypeParam;
  for (const int64_t count : kCounts) {
    for (const Function function :
         {Function::kRelu, Function::kTanh, Function::kGeluErf, Function::kGeluTanh}) {
      std::vector<float> x = this->exact(count, 1, 7.0F);
      if (count > 5) x[3] = 0.0F;
      const std::vector<float> dy = this->exact(count, 2);
      with_function(function, [&]<class F>(F) {
        expect_activation<T, F, true>(function, count, x, dy);
        expect_activation<T, F, false>(function, count, x, dy);
      });
    }
  }
}

TYPED_TEST(OperationPasses, AddRoundsTheSum) {
  using T = TypeParam;
  for (const int64_t count : kCounts) {
    const std::vector<float> a = this->exact(count, 1);
    const std::vector<float> b = this->exact(count, 2);
    std::vector<float> want;
    for (size_t i = 0; i < a.size(); ++i) want.push_back(rounded<T>(a[i] + b[i]));
    const std::vector<T> from = converted<T>(a);
    const std::vector<T> addend = converted<T>(b);
    EXPECT_EQ(this->flat(count,
                         [&](int64_t block, int thread, T* y) {
                           add<T, true>(from.data(), addend.data(), count, block, thread, y);
                         }),
              want);
    EXPECT_EQ(this->flat(count,
                         [&](int64_t block, int thread, T* y) {
                           add<T, false>(from.data(), addend.data(), count, block, thread, y);
                         }),
              want);
  }
}

TYPED_TEST(OperationPasses, DropoutHasTheMaskOfTheCpu) {
  using T = TypeParam;
  constexpr uint64_t kKey = 0x0123456789abcdef;
  for (const int64_t count : kCounts) {
    for (const float p : {0.1F, 0.5F, 0.999F}) {
      const DropoutSpec spec(p, {count});
      OperationRun cpu(1, spec, {spec.output()});
      cpu.run.key = &kKey;
      const std::vector<float> x = this->exact(count, 1);
      cpu.set_input(0, x);
      const std::vector<float> want = this->stored(cpu.forward());
      const std::vector<T> from = converted<T>(x);
      const DropoutRule rule(p);
      EXPECT_EQ(this->flat(count,
                           [&](int64_t block, int thread, T* y) {
                             drop<T, true>(kKey, rule, from.data(), count, block, thread, y);
                           }),
                want);
      EXPECT_EQ(this->flat(count,
                           [&](int64_t block, int thread, T* y) {
                             drop<T, false>(kKey, rule, from.data(), count, block, thread, y);
                           }),
                want);
    }
  }
}

TYPED_TEST(OperationPasses, SquaredErrorHasTheBitsOfTheCpu) {
  using T = TypeParam;
  constexpr float kScale = 0.3F;
  for (const int64_t count : kCounts) {
    const SquaredErrorSpec spec(count);
    OperationRun cpu(1, spec, {activation({count}), spec.output()}, 0b10);
    const std::vector<float> x = this->exact(count, 1);
    const std::vector<float> target = ordinary(count, 2);
    cpu.set_input(0, x);
    cpu.set_input(1, target);
    cpu.run.scale = &kScale;
    cpu.run.valid = count;
    const std::vector<float> want = cpu.forward();
    cpu.backward(want);
    const std::vector<T> from = converted<T>(x);
    std::vector<float> y(x.size());
    for_each_flat(count, [&](int64_t block, int thread) {
      squares<T, true>(from.data(), target.data(), count, block, thread, y.data());
    });
    EXPECT_EQ(y, want);
    EXPECT_EQ(this->flat(count,
                         [&](int64_t block, int thread, T* dx) {
                           square_gradients<T, true>(from.data(), target.data(), count, kScale,
                                                     block, thread, dx);
                         }),
              this->stored(cpu.dx(0)));
  }
}

// find_means of pool.cu
template <int kVector, bool kPacked, class T>
float mean_of(const T* plane, int64_t area) {
  std::array<float, kWarp> lanes;
  for (int lane = 0; lane < kWarp; ++lane) {
    lanes[static_cast<size_t>(lane)] = sum_of_lane<kVector, kPacked>(plane, area, lane);
  }
  tree_sum(lanes.data(), kWarp);
  return lanes[0] / static_cast<float>(area);
}

TYPED_TEST(OperationPasses, AveragePoolFindsTheMeanAndSpreadsItsGradient) {
  using T = TypeParam;
  constexpr int kPack = kPackSize<T>;
  for (const int64_t area : {1, 16, 49, 784, 1'025}) {
    constexpr int64_t kPlanes = 5;
    const std::vector<T> x = converted<T>(this->exact(kPlanes * area, 1));
    const std::vector<T> dy = converted<T>(this->exact(kPlanes, 2));
    for (int64_t plane = 0; plane < kPlanes; ++plane) {
      const T* first = x.data() + plane * area;
      double sum = 0.0;
      for (int64_t i = 0; i < area; ++i) sum += static_cast<double>(to_float(first[i]));
      const bool whole = area % kPack == 0;
      const float mean =
          whole ? mean_of<kPack, false>(first, area) : mean_of<1, false>(first, area);
      EXPECT_NEAR(mean, sum / static_cast<double>(area), 1e-6);
      if (!whole) continue;
      EXPECT_EQ((mean_of<kPack, true>(first, area)), mean);
    }
    std::vector<float> want;
    for (int64_t i = 0; i < kPlanes * area; ++i) {
      const float mean = to_float(dy[static_cast<size_t>(i / area)]) / static_cast<float>(area);
      want.push_back(rounded<T>(mean));
    }
    EXPECT_EQ(this->flat(kPlanes * area,
                         [&](int64_t block, int thread, T* dx) {
                           spread_means<T, true>(Divider(area), dy.data(), kPlanes * area, block,
                                                 thread, dx);
                         }),
              want);
  }
}

TYPED_TEST(OperationPasses, WindowsHaveTheMaximaOfALoop) {
  using T = TypeParam;
  for (const ImageShape image : {ImageShape{2, 3, 8, 8}, ImageShape{1, 2, 7, 5}}) {
    for (const auto& [kernel, stride, padding] :
         {std::array<int64_t, 3>{2, 2, 0}, {3, 2, 1}, {3, 1, 1}, {2, 3, 1}, {5, 2, 2}, {1, 2, 0}}) {
      SCOPED_TRACE(std::to_string(kernel) + "/" + std::to_string(stride));
      const MaxPoolShape shape{image, kernel, stride, padding};
      std::vector<float> wide = this->exact(image.size(), 1);
      for (float& value : wide) value = rounded<T>(value - 2.0F);  // padding of zeros would win
      const std::vector<T> x = converted<T>(wide);
      const std::vector<T> dy = converted<T>(this->exact(shape.output().size(), 2));
      const WindowPass pass(shape);
      std::vector<T> y(dy.size(), from_float<T>(test::kPoison));
      std::vector<T> dx(x.size(), from_float<T>(test::kPoison));
      std::vector<uint8_t> winners(dy.size());
      for (uint32_t i = 0; i < pass.windows; ++i) {
        window_forward(pass, i, x.data(), y.data(), winners.data());
      }
      for (uint32_t i = 0; i < pass.elements; ++i) {
        window_backward(pass, i, dy.data(), winners.data(), dx.data());
      }
      EXPECT_EQ(numbers::values(y), reference::max_pool(shape, numbers::values(x)));
      const auto want =
          reference::max_pool_backward(shape, numbers::values(x), numbers::values(dy));
      const double unit = std::is_same_v<T, float> ? 0x1p-22 : std::ldexp(8.0, -8);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(to_float(dx[i]), want[i], unit) << i;
    }
  }
}

TEST(WindowPass, NanWinsAndTheFirstOfEqualValuesGetsTheGradient) {
  const MaxPoolShape shape{{1, 1, 3, 3}, 3, 1, 0};
  const WindowPass pass(shape);
  const std::vector<float> gradient{2.0F};
  uint8_t winner = 255;
  float y = 0.0F;
  std::vector<float> x(9, -0.5F);
  window_forward(pass, 0, x.data(), &y, &winner);
  EXPECT_EQ(winner, 0);
  x[5] = test::kPoison;
  window_forward(pass, 0, x.data(), &y, &winner);
  EXPECT_TRUE(std::isnan(y));
  EXPECT_EQ(winner, 5);
}

TYPED_TEST(OperationPasses, CrossEntropyHasAllOptionsOfTheCpu) {
  using T = TypeParam;
  constexpr float kScale = 0.25F;
  constexpr int64_t kRows = 6;
  constexpr int64_t kClasses = 24;
  std::vector<float> class_weights = ordinary(kClasses, 5);
  for (float& weight : class_weights) weight += 1.5F;
  const std::vector<int32_t> labels{3, 0, -1, 23, 7, 7};
  for (const bool weighted : {false, true}) {
    for (const float smoothing : {0.0F, 0.2F}) {
      CrossEntropyOptions options{-1, smoothing, {}};
      if (weighted) options.class_weights = class_weights;
      const CrossEntropySpec spec({kRows, kClasses}, options);
      OperationRun cpu(1, spec,
                       {activation({kRows, kClasses}), {Element::kInt, Layout::kPlain, {kRows}}});
      const std::vector<float> wide = this->exact(kRows * kClasses, 1, 9.0F);
      cpu.set_input(0, wide);
      cpu.set_input(1, test::as_words(labels));
      cpu.run.scale = &kScale;
      cpu.run.valid = kRows;
      const std::vector<float> want = cpu.forward();
      cpu.backward(want);
      const CrossEntropyRule rule{weighted ? class_weights.data() : nullptr, smoothing, -1, true};
      const std::vector<T> x = converted<T>(wide);
      std::vector<KeptRow> kept;
      for (size_t n = 0; n < labels.size(); ++n) {
        const T* row = x.data() + static_cast<int64_t>(n) * kClasses;
        const RowPart whole = whole_row<true>(row, kClasses, kWarp, static_cast<int64_t>(n));
        kept.push_back(kept_of(whole));
        if (rule.is_ignored(labels[n])) continue;
        const float loss = loss_of(whole, to_float(row[labels[n]]), kClasses, smoothing);
        EXPECT_NEAR(loss * rule.weight(labels[n]), want[n], 1e-6F * (1.0F + want[n])) << n;
      }
      std::vector<T> dx(x.size(), from_float<T>(test::kPoison));
      find_gradients<true>(x.data(), labels, kept, kClasses, rule, kScale, kWarp, dx.data());
      const std::vector<float> got = floats(dx);
      const std::vector<float> gradients = cpu.dx(0);
      const float unit = std::is_same_v<T, float> ? 1e-6F : 0x1p-8F;
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i], gradients[i], unit * std::fabs(gradients[i]) + 1e-7F) << i;
      }
    }
  }
}

}  // namespace
}  // namespace pushpull
