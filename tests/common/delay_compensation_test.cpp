#include "common/update/delay_compensation.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <random>
#include <vector>

#include "common/update/range_update.h"
#include "tests/common/optimizer_width.h"

namespace pushpull {
namespace {

using Floats = std::vector<float>;

TEST(DelayCompensation, AddsLambdaTimesTheSquareTimesTheDistance) {
  // g = 8 / 4 = 2 and -6 / 4 = -1.5; distance -0.5 and 2
  const Floats sum{8.0F, -6.0F};
  const Floats now{1.0F, 5.0F};
  const Floats read{1.5F, 3.0F};
  Floats out(2);
  compensate_delay({4.0, 1.0, 0.25}, 2, sum.data(), now.data(), read.data(), out.data());
  EXPECT_EQ(out, (Floats{2.0F - 0.25F * 4.0F * 0.5F, -1.5F + 0.25F * 2.25F * 2.0F}));
  // clipped by 0.5 first: g = 1 and -0.75
  compensate_delay({4.0, 0.5, 0.25}, 2, sum.data(), now.data(), read.data(), out.data());
  EXPECT_EQ(out, (Floats{1.0F - 0.25F * 0.5F, -0.75F + 0.25F * 0.5625F * 2.0F}));
}

Floats random_floats(std::mt19937& engine, size_t n) {
  std::normal_distribution<float> normal;
  Floats out(n);
  for (float& x : out) x = normal(engine);
  return out;
}

using Function = std::function<void(const DelayCompensation&, size_t, const float*, const float*,
                                    const float*, float*)>;

TEST(DelayCompensation, EqualsThePlainReferenceBitForBitAtEveryWidthAndSize) {
  std::vector<Function> widths{compensate_delay, compensate_delay_baseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) widths.emplace_back(compensate_delay_avx2);
  if (__builtin_cpu_supports("avx512f")) widths.emplace_back(compensate_delay_avx512f);
#endif
  std::mt19937 engine(3);
  for (const size_t n : {0, 1, 7, 8, 15, 16, 17, 33, 127, 1024, 4099}) {
    const Floats sum = random_floats(engine, n);
    const Floats now = random_floats(engine, n);
    const Floats read = random_floats(engine, n);
    for (const Function& width : widths) {
      Floats out(n);
      width({7.0, 0.37, 0.04}, n, sum.data(), now.data(), read.data(), out.data());
      for (size_t i = 0; i < n; ++i) {
        volatile float g = sum[i] / 7.0F;  // volatile: no fused or reordered operations
        g = g * 0.37F;
        volatile float square = 0.04F * g;
        square = square * g;
        volatile float way = now[i] - read[i];
        way = square * way;
        const float want = g + way;
        ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(want)) << n << " " << i;
      }
    }
  }
}

// A range with a running statistic between two trainable tensors, cut at odd positions.
TEST(DelayCompensation, CompensatesTrainableTensorsOnly) {
  TensorTable table;
  for (const auto& [name, rule] :
       {std::pair{"a", UpdateRule::kOptimizer}, std::pair{"mean", UpdateRule::kAverage},
        std::pair{"b", UpdateRule::kOptimizer}}) {
    TensorInfo info;
    info.name = name;
    info.rule = rule;
    info.shape = {1500};
    table.add(info);
  }
  OptimizerOptions sgd;
  const RangeUpdate update(table, {0, table.total}, sgd);
  std::mt19937 engine(9);
  const auto n = static_cast<size_t>(table.total);
  const Floats sum = random_floats(engine, n);
  const Floats now = random_floats(engine, n);
  const Floats read = random_floats(engine, n);
  UpdateInfo info;
  info.learning_rate = 0.5;
  info.divisor = 2.0;
  info.share = 0.5;
  info.delay_compensation = 0.25;
  Floats plain(n);
  Floats compensated(n);
  Floats without_base(n);
  const Range all{0, table.total};
  update.apply(all, info, 1, now.data(), sum.data(), {}, compensated.data(), read.data());
  update.apply(all, info, 1, now.data(), sum.data(), {}, without_base.data(), nullptr);
  info.delay_compensation = 0.0;
  update.apply(all, info, 1, now.data(), sum.data(), {}, plain.data(), read.data());
  EXPECT_EQ(without_base, plain) << "without its base, an update is plain";
  for (size_t i = 0; i < n; ++i) {
    if (i >= 1500 && i < 3000) {
      ASSERT_EQ(compensated[i], plain[i]) << "running statistic " << i;
      continue;
    }
    const float g = sum[i] / 2.0F;
    const float want = now[i] - 0.25F * (g + 0.25F * g * g * (now[i] - read[i]));
    ASSERT_EQ(compensated[i], want) << i;
  }
  // the same in pieces
  info.delay_compensation = 0.25;
  Floats cut(n);
  for (int64_t lo = 0; lo < table.total; lo += 700) {
    const Range stride{lo, std::min(lo + 700, table.total)};
    update.apply(stride, info, 1, now.data(), sum.data() + lo, {}, cut.data(), read.data());
  }
  EXPECT_EQ(cut, compensated);
}

}  // namespace
}  // namespace pushpull
