// Tensors with a learning rate and a weight decay of their own: against plain loops in double, and
// against jobs in which all tensors have these settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/layout/tensor_table.h"
#include "common/update/optimizer.h"
#include "common/update/range_update.h"

namespace pushpull {
namespace {

constexpr int64_t kElements = 37;
constexpr double kGroupRate = 0.05;
constexpr double kJobDecay = 0.3;

struct OwnSettings {
  const char* name;
  double lr_scale = 1.0;
  std::optional<double> weight_decay = {};
  bool decay = true;
};

const std::vector<OwnSettings>& owns() {
  static const std::vector<OwnSettings> all = {
      {"plain"},
      {"slow", 0.25},
      {"light", 1.0, 0.01},
      {"undecayed", 1.0, {}, false},
      {"decayed", 1.0, 0.2, false},  // in place of the model's choice
      {"fast", 3.0, 0.0},
      {"frozen", 0.0},
  };
  return all;
}

TensorTable grouped_table(const std::vector<OwnSettings>& owns) {
  TensorTable table;
  for (const OwnSettings& own : owns) {
    TensorInfo info;
    info.name = own.name;
    info.shape = {kElements};
    info.init = InitKind::kNormal;
    info.value = 0.5F;
    info.lr_scale = own.lr_scale;
    info.weight_decay = own.weight_decay;
    info.decay = own.decay;
    table.add(info);
  }
  return table;
}

// Returns the same tensors without settings of their own.
std::vector<OwnSettings> without_settings() {
  std::vector<OwnSettings> out = owns();
  for (OwnSettings& own : out) own = {own.name};
  return out;
}

float gradient_at(int64_t step, size_t i) {
  return normal(4, RandomStream::kDummyData, static_cast<uint32_t>(step), i);
}

// Returns the whole vector after three updates.
//   info: the rate is kGroupRate.
std::vector<float> after_three_updates(const TensorTable& table, const OptimizerOptions& options,
                                       UpdateInfo info = {}) {
  const Range all{0, table.total};
  const RangeUpdate update(table, all, options);
  const auto n = static_cast<size_t>(table.total);
  std::vector<float> weights(n);
  update.initialise(3, weights.data());
  const std::vector<float> start = weights;
  std::vector<std::vector<float>> vectors(update.state_vectors(), std::vector<float>(n));
  std::vector<float*> state;
  for (std::vector<float>& vector : vectors) state.push_back(vector.data());
  info.learning_rate = kGroupRate;
  info.divisor = 2.0;
  for (int64_t step = 1; step <= 3; ++step) {
    std::vector<float> sum(n);
    for (size_t i = 0; i < n; ++i) sum[i] = gradient_at(step, i);
    update.apply(all, info, step, weights.data(), sum.data(), state, weights.data(),
                 info.delay_compensation == 0.0 ? nullptr : start.data());
  }
  return weights;
}

std::vector<float> tensor_of(const std::vector<float>& all, size_t tensor) {
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(tensor) * kElements;
  return {first, first + kElements};
}

OptimizerOptions optimizer_of(OptimizerKind kind) {
  OptimizerOptions options;
  options.kind = kind;
  options.weight_decay = kJobDecay;
  return options;
}

double decay_of(const OwnSettings& own) {
  return own.weight_decay.value_or(own.decay ? kJobDecay : 0.0);
}

// One element, as torch.optim's pages specify it.
double plain_element(OptimizerKind kind, double w, double lr, double decay, size_t i) {
  double buffer = 0.0;
  double m = 0.0;
  double v = 0.0;
  for (int64_t t = 1; t <= 3; ++t) {
    double g = static_cast<double>(gradient_at(t, i)) / 2.0;
    if (kind == OptimizerKind::kAdamW || kind == OptimizerKind::kLion) {
      w -= lr * decay * w;
    } else {
      g += kind == OptimizerKind::kLamb ? 0.0 : decay * w;
    }
    if (kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW ||
        kind == OptimizerKind::kLamb) {
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      const double corrected = m / (1.0 - std::pow(0.9, static_cast<double>(t)));
      const double root = std::sqrt(v / (1.0 - std::pow(0.999, static_cast<double>(t))));
      const double added = kind == OptimizerKind::kLamb ? decay * w : 0.0;
      w -= lr * (corrected / (root + 1e-8) + added);
      continue;
    }
    if (kind == OptimizerKind::kRmsprop || kind == OptimizerKind::kAdagrad) {
      v = kind == OptimizerKind::kAdagrad ? v + g * g : 0.999 * v + 0.001 * g * g;
      w -= lr * g / (std::sqrt(v) + 1e-8);
      continue;
    }
    if (kind == OptimizerKind::kLion) {
      const double u = 0.9 * m + 0.1 * g;
      m = 0.999 * m + 0.001 * g;
      w -= lr * static_cast<double>((u > 0) - (u < 0));
      continue;
    }
    buffer = 0.9 * buffer + g;
    w -= lr * (kind == OptimizerKind::kSgd        ? g
               : kind == OptimizerKind::kMomentum ? buffer
                                                  : g + 0.9 * buffer);
  }
  return w;
}

class RangeUpdateGroups : public testing::TestWithParam<OptimizerKind> {};

INSTANTIATE_TEST_SUITE_P(, RangeUpdateGroups,
                         testing::Values(OptimizerKind::kSgd, OptimizerKind::kMomentum,
                                         OptimizerKind::kNesterov, OptimizerKind::kAdam,
                                         OptimizerKind::kAdamW, OptimizerKind::kRmsprop,
                                         OptimizerKind::kAdagrad, OptimizerKind::kLion,
                                         OptimizerKind::kLamb),
                         [](const auto& kind) { return to_string(kind.param); });

TEST_P(RangeUpdateGroups, TensorsMoveAsInPlainLoops) {
  const TensorTable table = grouped_table(owns());
  std::vector<float> start(static_cast<size_t>(table.total));
  RangeUpdate(table, {0, table.total}, {}).initialise(3, start.data());
  const std::vector<float> weights = after_three_updates(table, optimizer_of(GetParam()));
  for (size_t i = 0; i < weights.size(); ++i) {
    const OwnSettings& own = owns()[i / kElements];
    const double want =
        plain_element(GetParam(), start[i], kGroupRate * own.lr_scale, decay_of(own), i);
    EXPECT_NEAR(weights[i], want, 2e-6) << own.name << " " << i % kElements;
  }
}

// Returns the kinds of an update, by number.
UpdateInfo update_of_kind(int kind) {
  UpdateInfo info;
  if (kind == 1) info.delay_compensation = 0.5;
  if (kind == 2) info.share = 0.5;
  if (kind == 3) info.clip = 0.25;
  return info;
}

TEST_P(RangeUpdateGroups, TensorsHaveTheBitsOfJobsWithTheirSettings) {
  for (const int kind : {0, 1, 2, 3}) {
    const std::vector<float> got =
        after_three_updates(grouped_table(owns()), optimizer_of(GetParam()), update_of_kind(kind));
    for (size_t t = 0; t < owns().size(); ++t) {
      if (owns()[t].lr_scale != 1.0) continue;
      OptimizerOptions options = optimizer_of(GetParam());
      options.weight_decay = decay_of(owns()[t]);
      EXPECT_EQ(tensor_of(got, t), tensor_of(after_three_updates(grouped_table(without_settings()),
                                                                 options, update_of_kind(kind)),
                                             t))
          << owns()[t].name << " " << kind;
    }
  }
}

// The sum of changes has been shaped by the settings already.
TEST_P(RangeUpdateGroups, ChangesAreAppliedToAllAlike) {
  UpdateInfo info;
  info.changes = true;
  std::vector<OwnSettings> plain = owns();
  for (OwnSettings& own : plain) own = {own.name, 1.0, {}, own.decay};
  EXPECT_EQ(after_three_updates(grouped_table(owns()), optimizer_of(GetParam()), info),
            after_three_updates(grouped_table(plain), optimizer_of(GetParam()), info));
}

TEST_P(RangeUpdateGroups, RulesForADeviceAreThoseOfEachTensor) {
  const TensorTable table = grouped_table(owns());
  const OptimizerOptions options = optimizer_of(GetParam());
  std::vector<RuleSegment> rules;
  UpdateInfo info;
  info.learning_rate = kGroupRate;
  info.divisor = 2.0;
  RangeUpdate(table, {0, table.total}, options).add_rules(info, 3, false, rules);
  ASSERT_EQ(rules.size(), owns().size());
  for (size_t t = 0; t < owns().size(); ++t) {
    OptimizerOptions own = options;
    own.weight_decay = decay_of(owns()[t]);
    const ElementRule want = optimizer_rule(own, {kGroupRate * owns()[t].lr_scale, 2.0, 1.0, 3});
    EXPECT_EQ(rules[t].rule.lr, want.lr) << owns()[t].name;
    EXPECT_EQ(rules[t].rule.adam.step, want.adam.step) << owns()[t].name;
    EXPECT_EQ(rules[t].rule.adam.keep, want.adam.keep) << owns()[t].name;
    EXPECT_EQ(rules[t].rule.decay, want.decay) << owns()[t].name;
    EXPECT_EQ(rules[t].rule.scale.weight_decay, want.scale.weight_decay) << owns()[t].name;
  }
}

TEST_P(RangeUpdateGroups, TheCutIntoRangesChangesNothing) {
  const TensorTable table = grouped_table(owns());
  const OptimizerOptions options = optimizer_of(GetParam());
  const std::vector<float> whole = after_three_updates(table, options);
  std::vector<float> parts(whole.size());
  for (int64_t lo = 0; lo < table.total; lo += 50) {
    const Range here{lo, std::min<int64_t>(lo + 50, table.total)};
    const RangeUpdate update(table, here, options);
    const auto n = static_cast<size_t>(here.size());
    float* const weights = parts.data() + lo;
    update.initialise(3, weights);
    std::vector<std::vector<float>> vectors(update.state_vectors(), std::vector<float>(n));
    std::vector<float*> state;
    for (std::vector<float>& vector : vectors) state.push_back(vector.data());
    UpdateInfo info;
    info.learning_rate = kGroupRate;
    info.divisor = 2.0;
    for (int64_t step = 1; step <= 3; ++step) {
      std::vector<float> sum(n);
      for (size_t i = 0; i < n; ++i) sum[i] = gradient_at(step, i + static_cast<size_t>(lo));
      update.apply({0, here.size()}, info, step, weights, sum.data(), state, weights);
    }
  }
  EXPECT_EQ(parts, whole);
}

}  // namespace
}  // namespace pushpull
