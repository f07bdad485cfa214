#include "common/update/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "common/base/error.h"
#include "common/base/simd.h"
#include "tests/common/optimizer_width.h"

// Keep the reference scalar: one element at a time.
#if defined(__clang__)
#define NOT_VECTORISED
#else
#define NOT_VECTORISED __attribute__((optimize("no-tree-vectorize")))
#endif

namespace pushpull {
namespace {

using Floats = std::vector<float>;

constexpr OptimizerKind kAllKinds[] = {
    OptimizerKind::kSgd,     OptimizerKind::kMomentum, OptimizerKind::kNesterov,
    OptimizerKind::kAdam,    OptimizerKind::kAdamW,    OptimizerKind::kRmsprop,
    OptimizerKind::kAdagrad, OptimizerKind::kLion,     OptimizerKind::kLamb};

struct Vectors {
  Floats w;
  Floats sum;
  std::vector<Floats> state;

  std::vector<float*> state_at(size_t first) {
    std::vector<float*> pointers;
    for (Floats& s : state) pointers.push_back(s.data() + first);
    return pointers;
  }
};

Vectors random_vectors(OptimizerKind kind, size_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Vectors v;
  for (size_t i = 0; i < n; ++i) v.w.push_back(normal(engine));
  for (size_t i = 0; i < n; ++i) v.sum.push_back(8.0F * normal(engine));
  v.state.assign(state_names(kind).size(), Floats(n));
  for (Floats& s : v.state) {
    for (float& x : s) x = std::abs(normal(engine));
  }
  return v;
}

// The plain reference: one element at a time, written from the formulas, without the library's
// helpers.
NOT_VECTORISED void plain_update(const OptimizerOptions& o, const UpdateContext& c, Vectors& v) {
  const auto wd = static_cast<float>(o.weight_decay);
  const auto lr = static_cast<float>(c.learning_rate);
  double beta1_t = 1.0;
  double beta2_t = 1.0;
  for (int64_t t = 0; t < c.updates; ++t) beta1_t *= o.beta1;
  for (int64_t t = 0; t < c.updates; ++t) beta2_t *= o.beta2;
  for (size_t i = 0; i < v.w.size(); ++i) {
    float w = v.w[i];
    float g = v.sum[i] / static_cast<float>(c.divisor);
    if (c.clip != 1.0) g *= static_cast<float>(c.clip);
    const bool decoupled = o.kind == OptimizerKind::kAdamW || o.kind == OptimizerKind::kLion;
    const bool in_gradient = !decoupled && o.kind != OptimizerKind::kLamb;
    if (wd != 0.0F && in_gradient) g = g + wd * w;
    if (wd != 0.0F && decoupled) w = w * static_cast<float>(1.0 - c.learning_rate * o.weight_decay);
    if (o.kind == OptimizerKind::kSgd) {
      w = w - lr * g;
    } else if (o.kind == OptimizerKind::kMomentum || o.kind == OptimizerKind::kNesterov) {
      const auto mu = static_cast<float>(o.momentum);
      const float b = mu * v.state[0][i] + g;
      v.state[0][i] = b;
      if (o.kind == OptimizerKind::kMomentum) {
        w = w - lr * b;
      } else {
        const float ahead = g + mu * b;
        w = w - lr * ahead;
      }
    } else if (o.kind == OptimizerKind::kRmsprop) {
      const float q =
          static_cast<float>(o.beta2) * v.state[0][i] + static_cast<float>(1.0 - o.beta2) * g * g;
      v.state[0][i] = q;
      w = w - lr * g / (std::sqrt(q) + static_cast<float>(o.epsilon));
    } else if (o.kind == OptimizerKind::kAdagrad) {
      v.state[0][i] = v.state[0][i] + g * g;
      w = w - lr * g / (std::sqrt(v.state[0][i]) + static_cast<float>(o.epsilon));
    } else if (o.kind == OptimizerKind::kLion) {
      const float m = v.state[0][i];
      const float u = static_cast<float>(o.beta1) * m + static_cast<float>(1.0 - o.beta1) * g;
      v.state[0][i] = static_cast<float>(o.beta2) * m + static_cast<float>(1.0 - o.beta2) * g;
      if (u > 0.0F) w = w - lr;
      if (u < 0.0F) w = w + lr;
    } else {
      const float m =
          static_cast<float>(o.beta1) * v.state[0][i] + static_cast<float>(1.0 - o.beta1) * g;
      const float q =
          static_cast<float>(o.beta2) * v.state[1][i] + static_cast<float>(1.0 - o.beta2) * g * g;
      v.state[0][i] = m;
      v.state[1][i] = q;
      const float denom = std::sqrt(q) / static_cast<float>(std::sqrt(1.0 - beta2_t)) +
                          static_cast<float>(o.epsilon);
      if (o.kind == OptimizerKind::kLamb) {
        float u = static_cast<float>(1.0 / (1.0 - beta1_t)) * m / denom;
        if (wd != 0.0F) u = u + wd * w;
        w = w - lr * u;
      } else {
        w = w - static_cast<float>(c.learning_rate / (1.0 - beta1_t)) * m / denom;
      }
    }
    v.w[i] = w;
  }
}

NOT_VECTORISED void plain_average(float keep, float divisor, const Floats& sum, Floats& r) {
  const auto take = static_cast<float>(1.0 - static_cast<double>(keep));
  for (size_t i = 0; i < r.size(); ++i) r[i] = keep * r[i] + take * (sum[i] / divisor);
}

bool same_bits(const Floats& a, const Floats& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

constexpr size_t kSize = 1001;

using UpdateFunction =
    std::function<void(const OptimizerOptions&, const UpdateContext&, size_t, const float*,
                       SumHalves, std::span<float* const>, float*)>;
using AverageFunction =
    std::function<void(double, double, double, size_t, const float*, const float*, float*)>;

struct Width {
  const char* name;
  UpdateFunction update;
  AverageFunction average;
};

std::vector<Width> widths_of_this_machine() {
  std::vector<Width> widths = {{"dispatched", update_range, average_range},
                               {"baseline", update_range_baseline, average_range_baseline}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    widths.push_back({"avx2", update_range_avx2, average_range_avx2});
  }
  if (__builtin_cpu_supports("avx512f")) {
    widths.push_back({"avx512f", update_range_avx512f, average_range_avx512f});
  }
#endif
  return widths;
}

void update_in_place(const UpdateFunction& update, const OptimizerOptions& options,
                     const UpdateContext& context, Vectors& v, size_t first, size_t count) {
  update(options, context, count, v.w.data() + first, v.sum.data() + first, v.state_at(first),
         v.w.data() + first);
}

// Runs `check` for each rule, with and without weight decay and clipping.
void for_each_rule(
    const std::function<void(const OptimizerOptions&, const UpdateContext&)>& check) {
  for (const OptimizerKind kind : kAllKinds) {
    for (const double decay : {0.0, 0.01}) {
      for (const double clip : {1.0, 0.37}) {
        for (const double divisor : {8.0, 7.0}) {
          OptimizerOptions options;
          options.kind = kind;
          options.weight_decay = decay;
          const UpdateContext context{0.0123, divisor, clip, 17};
          SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << ", decay "
                                          << decay << ", clip " << clip << ", divisor " << divisor);
          check(options, context);
        }
      }
    }
  }
}

TEST(Optimizer, EqualsThePlainReferenceBitForBitAtEveryWidthAndSize) {
  for (const Width& width : widths_of_this_machine()) {
    SCOPED_TRACE(width.name);
    for_each_rule([&](const OptimizerOptions& options, const UpdateContext& context) {
      for (const size_t n : {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 127, 1023, 4099}) {
        Vectors expected = random_vectors(options.kind, n, 42);
        Vectors actual = expected;
        plain_update(options, context, expected);
        update_in_place(width.update, options, context, actual, 0, n);
        ASSERT_TRUE(same_bits(actual.w, expected.w)) << n;
        for (size_t s = 0; s < actual.state.size(); ++s) {
          ASSERT_TRUE(same_bits(actual.state[s], expected.state[s])) << n << " " << s;
        }
      }
    });
  }
}

TEST(Optimizer, GivesTheSameBitsForAnyCutOfTheRange) {
  for (const Width& width : widths_of_this_machine()) {
    SCOPED_TRACE(width.name);
    for_each_rule([&](const OptimizerOptions& options, const UpdateContext& context) {
      const Vectors start = random_vectors(options.kind, kSize, 7);
      Vectors whole = start;
      update_in_place(width.update, options, context, whole, 0, kSize);
      std::mt19937 engine(11);
      Vectors cut = start;
      for (size_t first = 0; first < kSize;) {
        const size_t count = std::min<size_t>(1 + engine() % 90, kSize - first);
        update_in_place(width.update, options, context, cut, first, count);
        first += count;
      }
      ASSERT_TRUE(same_bits(cut.w, whole.w));
      for (size_t s = 0; s < cut.state.size(); ++s) {
        ASSERT_TRUE(same_bits(cut.state[s], whole.state[s]));
      }
    });
  }
}

TEST(Optimizer, WritesTheSameToAnotherVectorAsInPlace) {
  constexpr size_t kMany = 517;
  for_each_rule([&](const OptimizerOptions& options, const UpdateContext& context) {
    Vectors in_place = random_vectors(options.kind, kMany, 5);
    Vectors apart = in_place;
    const Floats before = apart.w;
    Floats out(kMany, -1.0F);
    update_in_place(update_range, options, context, in_place, 0, kMany);
    update_range(options, context, kMany, apart.w.data(), apart.sum.data(), apart.state_at(0),
                 out.data());
    EXPECT_TRUE(same_bits(out, in_place.w));
    EXPECT_TRUE(same_bits(apart.w, before));
  });
}

// Hand-worked: w = 1, gradient sums 2, -4, 8 of four micro-batches, so g = 0.5, -1, 2; lr 0.1.
Floats three_steps(OptimizerOptions options, double lr = 0.1, double clip = 1.0) {
  Floats w = {1.0F};
  std::vector<Floats> state(state_names(options.kind).size(), Floats{0.0F});
  std::vector<float*> pointers;
  for (Floats& s : state) pointers.push_back(s.data());
  Floats seen;
  int64_t t = 0;
  for (const float sum : {2.0F, -4.0F, 8.0F}) {
    update_range(options, {lr, 4.0, clip, ++t}, 1, w.data(), &sum, pointers, w.data());
    seen.push_back(w[0]);
  }
  return seen;
}

// A few roundings to float (6e-8 each) of values near 1.
constexpr float kTolerance = 5e-7F;
auto near(const std::vector<float>& expected) {
  return testing::Pointwise(testing::FloatNear(kTolerance), expected);
}

TEST(UpdateRange, ASumInTwoHalvesAndAStreamHaveTheSameBits) {
  for (const OptimizerKind kind : kAllKinds) {
    const OptimizerOptions options{.kind = kind, .weight_decay = 0.01};
    for (const Width& width : widths_of_this_machine()) {
      for (const size_t first : {0, 1, 5, 16, 127}) {
        const size_t n = kSize - first;
        Vectors want = random_vectors(kind, kSize, 3);
        Vectors have = want;
        const Floats right = random_vectors(kind, kSize, 4).sum;
        Floats sum = want.sum;
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
        UpdateContext context{0.1, 8.0, 0.5, 3};
        Floats out(kSize);
        Floats streamed(kSize);
        update_range(options, context, n, want.w.data() + first, sum.data() + first,
                     want.state_at(first), out.data() + first);
        context.stream = true;
        const SumHalves halves{have.sum.data(), right.data()};
        width.update(options, context, n, have.w.data() + first,
                     halves + static_cast<int64_t>(first), have.state_at(first),
                     streamed.data() + first);
        end_streams();
        ASSERT_TRUE(same_bits(streamed, out)) << width.name << ", " << first;
        for (size_t s = 0; s < want.state.size(); ++s) {
          ASSERT_TRUE(same_bits(have.state[s], want.state[s])) << width.name << ", " << first;
        }
      }
    }
  }
}

TEST(Optimizer, SgdMovesAsWorkedOutByHand) {
  // 1 - 0.1 * 0.5 = 0.95; 0.95 + 0.1 = 1.05; 1.05 - 0.2 = 0.85
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kSgd}), near({0.95F, 1.05F, 0.85F}));
}

TEST(Optimizer, WeightDecayAddsToTheGradient) {
  // g = 0.5 + 0.1 * 1 = 0.6 -> 0.94; g = -1 + 0.094 = -0.906 -> 1.0306;
  // g = 2 + 0.10306 = 2.10306 -> 0.820294
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kSgd, .weight_decay = 0.1}),
              near({0.94F, 1.0306F, 0.820294F}));
}

TEST(Optimizer, ClipScalesTheGradientBeforeWeightDecay) {
  // g = 0.25 + 0.1 = 0.35 -> 0.965; g = -0.5 + 0.0965 = -0.4035 -> 1.00535;
  // g = 1 + 0.100535 = 1.100535 -> 0.8952965
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kSgd, .weight_decay = 0.1}, 0.1, 0.5),
              near({0.965F, 1.00535F, 0.8952965F}));
}

TEST(Optimizer, MomentumMovesAsWorkedOutByHand) {
  // b = 0.5 -> 0.95; b = 0.45 - 1 = -0.55 -> 1.005; b = -0.495 + 2 = 1.505 -> 0.8545
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kMomentum}), near({0.95F, 1.005F, 0.8545F}));
}

TEST(Optimizer, NesterovMovesAsWorkedOutByHand) {
  // b = 0.5, g + 0.9 b = 0.95 -> 0.905; b = -0.55, g + 0.9 b = -1.495 -> 1.0545;
  // b = 1.505, g + 0.9 b = 3.3545 -> 0.71905
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kNesterov}), near({0.905F, 1.0545F, 0.71905F}));
}

TEST(Optimizer, AdamMovesAsWorkedOutByHand) {
  // t 1: m = 0.05, v = 0.00025; m / (1 - 0.9) = 0.5, sqrt(v / (1 - 0.999)) = 0.5 -> 1 - 0.1 = 0.9
  // t 2: m = 0.045 - 0.1 = -0.055, v = 0.00024975 + 0.001 = 0.00124975;
  //      m / 0.19 = -0.28947368, v / 0.001999 = 0.62518759, root 0.79068805;
  //      ratio -0.36610353 -> 0.93661035
  // t 3: m = -0.0495 + 0.2 = 0.1505, v = 0.0012485003 + 0.004 = 0.0052485003;
  //      m / 0.271 = 0.55535055, v / 0.002997001 = 1.7512508, root 1.3233483;
  //      ratio 0.41965562 -> 0.89464479
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kAdam}), near({0.9F, 0.93661035F, 0.89464479F}));
}

TEST(Optimizer, RmspropMovesAsWorkedOutByHand) {
  // v = 0.0025, root 0.05, 0.5 / 0.05 = 10 -> 0; v = 0.012475, root 0.11169154, -8.9532296 ->
  // 0.89532296; v = 0.05235025, root 0.22880177, 8.7411911 -> 0.02120385
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kRmsprop, .beta2 = 0.99}),
              near({0.0F, 0.89532296F, 0.02120385F}));
}

TEST(Optimizer, AdagradMovesAsWorkedOutByHand) {
  // 0.5 / 0.5 -> 0.9; -1 / sqrt(1.25) = -0.89442719 -> 0.98944272; 2 / sqrt(5.25) = 0.87287156 ->
  // 0.90215556
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kAdagrad}),
              near({0.9F, 0.98944272F, 0.90215556F}));
}

TEST(Optimizer, LionMovesByTheSignAsWorkedOutByHand) {
  // u = 0.05 -> 0.9, m = 0.005; u = 0.0045 - 0.1 -> 1, m = -0.00505; u = -0.004545 + 0.2 -> 0.9
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kLion, .beta2 = 0.99}), near({0.9F, 1.0F, 0.9F}));
  // w *= 0.95 before each: 0.95 - 0.1 = 0.85; 0.8075 + 0.1 = 0.9075; 0.862125 - 0.1 = 0.762125
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kLion, .beta2 = 0.99, .weight_decay = 0.5}),
              near({0.85F, 0.9075F, 0.762125F}));
}

TEST(Optimizer, AdamWShrinksTheWeightApartFromTheGradient) {
  // Adam's moves above, after w *= 1 - 0.1 * 0.5 = 0.95:
  // 0.95 - 0.1 = 0.85; 0.8075 + 0.036610353 = 0.84411035; 0.80190483 - 0.041965562 = 0.75993927
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kAdamW, .weight_decay = 0.5}),
              near({0.85F, 0.84411035F, 0.75993927F}));
}

TEST(Optimizer, LambAddsTheWeightDecayToItsDirection) {
  // Adam's directions above, and 0.5 w: 1 - 0.1 (1 + 0.5) = 0.85;
  // 0.85 - 0.1 (-0.36610353 + 0.425) = 0.84411035; 0.84411035 - 0.1 (0.41965562 + 0.42205518)
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kLamb}), near({0.9F, 0.93661035F, 0.89464479F}));
  EXPECT_THAT(three_steps({.kind = OptimizerKind::kLamb, .weight_decay = 0.5}),
              near({0.85F, 0.84411035F, 0.75993927F}));
}

// With a learning rate of 1 an update subtracts the direction.
TEST(Optimizer, LambsDirectionsAreThoseOfItsUpdate) {
  for (const double decay : {0.0, 0.01}) {
    const OptimizerOptions options{.kind = OptimizerKind::kLamb, .weight_decay = decay};
    const UpdateContext context{1.0, 7.0, 0.37, 17};
    Vectors v = random_vectors(options.kind, kSize, 7);
    const Vectors start = v;
    const std::vector<const float*> state{v.state[0].data(), v.state[1].data()};
    Floats directions(kSize);
    lamb_directions(options, context, kSize, v.w.data(), v.sum.data(), state, directions.data());
    EXPECT_TRUE(same_bits(v.w, start.w));
    EXPECT_TRUE(same_bits(v.state[0], start.state[0]));
    EXPECT_TRUE(same_bits(v.state[1], start.state[1]));
    update_in_place(update_range, options, context, v, 0, kSize);
    Floats moved(kSize);
    for (size_t i = 0; i < kSize; ++i) moved[i] = start.w[i] - directions[i];
    EXPECT_TRUE(same_bits(v.w, moved)) << decay;
  }
}

TEST(Optimizer, AdamCorrectsItsBiasByTheRangesUpdates) {
  // v is as after one update with beta2 = 0.5. With t = 2, v = 0.75 is corrected to 1.
  float w = 0.0F;
  float m = 0.0F;
  float v = 0.5F;
  const float sum = 1.0F;
  float* const state[] = {&m, &v};
  // m = 0.5, / 0.75; v = 0.25 + 0.5 = 0.75, / 0.75 = 1 -> w = -0.5 / 0.75
  update_range({.kind = OptimizerKind::kAdam, .beta1 = 0.5, .beta2 = 0.5}, {1.0, 1.0, 1.0, 2}, 1,
               &w, &sum, state, &w);
  EXPECT_NEAR(w, -2.0F / 3.0F, kTolerance);
}

TEST(Optimizer, NamesItsStateAsPyTorchDoes) {
  EXPECT_THAT(state_names(OptimizerKind::kSgd), testing::IsEmpty());
  EXPECT_THAT(state_names(OptimizerKind::kMomentum), testing::ElementsAre("momentum_buffer"));
  EXPECT_THAT(state_names(OptimizerKind::kNesterov), testing::ElementsAre("momentum_buffer"));
  EXPECT_THAT(state_names(OptimizerKind::kAdam), testing::ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(state_names(OptimizerKind::kAdamW), testing::ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(state_names(OptimizerKind::kRmsprop), testing::ElementsAre("square_avg"));
  EXPECT_THAT(state_names(OptimizerKind::kAdagrad), testing::ElementsAre("sum"));
  EXPECT_THAT(state_names(OptimizerKind::kLion), testing::ElementsAre("exp_avg"));
  EXPECT_THAT(state_names(OptimizerKind::kLamb), testing::ElementsAre("exp_avg", "exp_avg_sq"));
}

TEST(Optimizer, RefusesACallWithoutItsState) {
  float w = 1.0F;
  const float sum = 1.0F;
  EXPECT_THROW(
      update_range({.kind = OptimizerKind::kAdam}, {0.1, 1.0, 1.0, 1}, 1, &w, &sum, {}, &w), Error);
  EXPECT_THROW(update_range({}, {0.1, 1.0, 1.0, 0}, 1, &w, &sum, {}, &w), Error);
}

TEST(RunningAverage, EqualsThePlainReferenceBitForBitAtEveryWidth) {
  for (const Width& width : widths_of_this_machine()) {
    SCOPED_TRACE(width.name);
    for (const size_t n : {0, 1, 7, 16, 33, 1023}) {
      const Vectors v = random_vectors(OptimizerKind::kSgd, n, 3);
      Floats expected = v.w;
      Floats actual = v.w;
      plain_average(0.875F, 7.0F, v.sum, expected);
      width.average(0.125, 1.0, 7.0, n, actual.data(), v.sum.data(), actual.data());
      EXPECT_TRUE(same_bits(actual, expected)) << n;
    }
  }
}

TEST(RunningAverage, MovesAsWorkedOutByHand) {
  // mean = 12 / 4 = 3; 0.9 * 1 + 0.1 * 3 = 1.2
  float r = 1.0F;
  const float sum = 12.0F;
  average_range(0.1, 1.0, 4.0, 1, &r, &sum, &r);
  EXPECT_NEAR(r, 1.2F, kTolerance);
}

TEST(RunningAverage, PartsOfAStepKeepAsMuchAsTheWholeStep) {
  // Four quarters that report 3 each: keep = 0.9^(1/4) four times, so 1 moves to 1.2 as above.
  float r = 1.0F;
  const float sum = 3.0F;
  for (int part = 0; part < 4; ++part) average_range(0.1, 0.25, 1.0, 1, &r, &sum, &r);
  EXPECT_NEAR(r, 1.2F, kTolerance);
}

}  // namespace
}  // namespace pushpull
