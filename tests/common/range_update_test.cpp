#include "common/update/range_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/layout/tensor_table.h"
#include "common/update/optimizer.h"

namespace pushpull {
namespace {

TensorInfo tensor(const std::string& name, int64_t size, InitKind init, float value) {
  TensorInfo info;
  info.name = name;
  info.shape = {size};
  info.init = init;
  info.value = value;
  return info;
}

TensorTable three_inits() {
  TensorTable table;
  table.add(tensor("constant", 11, InitKind::kConstant, 0.75F));
  table.add(tensor("normal", 101, InitKind::kNormal, 0.02F));
  table.add(tensor("uniform", 50, InitKind::kUniform, 0.5F));
  return table;
}

TEST(RangeUpdate, InitialisesEachTensorByItsRule) {
  const TensorTable table = three_inits();
  std::vector<float> weights(static_cast<size_t>(table.total));
  RangeUpdate(table, {0, table.total}, {}).initialise(9, weights.data());
  for (uint64_t i = 0; i < 11; ++i) EXPECT_EQ(weights[i], 0.75F);
  for (uint64_t i = 0; i < 101; ++i) {
    EXPECT_EQ(weights[11 + i], 0.02F * normal(9, RandomStream::kInit, 1, i)) << i;
  }
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(weights[112 + i], uniform01(9, RandomStream::kInit, 2, i) - 0.5F) << i;
  }
}

TEST(RangeUpdate, InitialWeightsDoNotDependOnTheCutIntoRanges) {
  const TensorTable table = three_inits();
  std::vector<float> whole(static_cast<size_t>(table.total));
  RangeUpdate(table, {0, table.total}, {}).initialise(9, whole.data());
  for (const int64_t cut : {1, 3, 13, 64}) {
    std::vector<float> parts(whole.size());
    for (int64_t lo = 0; lo < table.total; lo += cut) {
      RangeUpdate(table, {lo, std::min(lo + cut, table.total)}, {})
          .initialise(9, parts.data() + lo);
    }
    EXPECT_EQ(parts, whole) << cut;
  }
}

// Three trainable tensors; the model declares that the bias and the norm do not decay.
TensorTable three_decays() {
  TensorTable table;
  for (const std::string name : {"fc.weight", "fc.bias", "norm.weight"}) {
    table.add(tensor(name, 40, InitKind::kUniform, 0.5F));
    table.tensors.back().decay = name == "fc.weight";
  }
  return table;
}

struct Moved {
  std::vector<float> weights;
  std::vector<std::vector<float>> state;
};

// Returns the weights after two updates of the whole table.
//   compensates: the second gradient was computed on the initial weights.
Moved after_two_updates(const TensorTable& table, const OptimizerOptions& options,
                        bool compensates) {
  const Range all{0, table.total};
  const RangeUpdate update(table, all, options);
  const auto n = static_cast<size_t>(table.total);
  Moved out{std::vector<float>(n), {update.state_vectors(), std::vector<float>(n)}};
  update.initialise(3, out.weights.data());
  const std::vector<float> start = out.weights;
  std::vector<float*> state;
  for (std::vector<float>& vector : out.state) state.push_back(vector.data());
  for (int64_t step = 1; step <= 2; ++step) {
    std::vector<float> sum(n);
    for (size_t i = 0; i < n; ++i) {
      sum[i] = normal(4, RandomStream::kDummyData, static_cast<uint32_t>(step), i);
    }
    UpdateInfo info;
    info.learning_rate = 0.1;
    info.divisor = 2.0;
    if (compensates) info.delay_compensation = 0.5;
    update.apply(all, info, step, out.weights.data(), sum.data(), state, out.weights.data(),
                 compensates ? start.data() : nullptr);
  }
  return out;
}

// e = w after the first update, then e = 0.9 e + 0.1 w in float; a running statistic stays what it is.
TEST(RangeUpdateAverage, FollowsTheWeightsAfterEachUpdate) {
  TensorTable table = three_decays();
  table.tensors.back().rule = UpdateRule::kAverage;
  table.tensors.back().average_momentum = 0.25F;
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
    OptimizerOptions options;
    options.kind = kind;
    options.ema = 0.9;
    EXPECT_EQ(state_names(options).back(), kEmaName);
    const RangeUpdate update(table, {0, table.total}, options);
    const auto n = static_cast<size_t>(table.total);
    std::vector<std::vector<float>> vectors(update.state_vectors(), std::vector<float>(n));
    ASSERT_EQ(vectors.size(), state_names(kind).size() + 1);
    std::vector<float*> state;
    for (std::vector<float>& vector : vectors) state.push_back(vector.data());
    std::vector<float> weights(n, 1.0F);
    std::vector<float> want;
    for (int64_t step = 1; step <= 3; ++step) {
      std::vector<float> sum(n);
      for (size_t i = 0; i < n; ++i) sum[i] = static_cast<float>(i % 7) - 3.0F;
      UpdateInfo info;
      info.learning_rate = 0.1;
      update.apply({0, table.total}, info, step, weights.data(), sum.data(), state, weights.data());
      if (step == 1) want = weights;
      for (size_t i = 0; i < n && step > 1; ++i) {
        want[i] = i < 80 ? 0.9F * want[i] + static_cast<float>(1.0 - 0.9) * weights[i] : weights[i];
      }
      EXPECT_EQ(vectors.back(), want) << "step " << step;
    }
  }
}

// Returns one tensor's weights and state.
std::vector<float> part_of(const Moved& moved, int tensor) {
  const auto part = [&](const std::vector<float>& all) {
    return std::vector<float>(all.begin() + tensor * 40, all.begin() + (tensor + 1) * 40);
  };
  std::vector<float> out = part(moved.weights);
  for (const std::vector<float>& vector : moved.state) {
    const std::vector<float> here = part(vector);
    out.insert(out.end(), here.begin(), here.end());
  }
  return out;
}

class RangeUpdateDecay : public testing::TestWithParam<OptimizerKind> {
 protected:
  // Expects of each tensor the result of a weight decay of 0.3 or of 0.
  void expect_decays(const std::string& no_decay, const std::vector<bool>& decays) {
    OptimizerOptions options;
    options.kind = GetParam();
    for (const bool compensates : {false, true}) {
      options.no_decay = NoDecay::parse("none");
      options.weight_decay = 0.3;
      const Moved with = after_two_updates(three_decays(), options, compensates);
      options.no_decay = NoDecay::parse(no_decay);
      const Moved mixed = after_two_updates(three_decays(), options, compensates);
      options.weight_decay = 0.0;
      const Moved without = after_two_updates(three_decays(), options, compensates);
      for (int t = 0; t < 3; ++t) {
        EXPECT_NE(part_of(with, t), part_of(without, t));
        const bool decay = decays[static_cast<size_t>(t)];
        EXPECT_EQ(part_of(mixed, t), part_of(decay ? with : without, t)) << no_decay << " " << t;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, RangeUpdateDecay,
                         testing::Values(OptimizerKind::kSgd, OptimizerKind::kMomentum,
                                         OptimizerKind::kNesterov, OptimizerKind::kAdam,
                                         OptimizerKind::kAdamW),
                         [](const auto& of) { return to_string(of.param); });

TEST_P(RangeUpdateDecay, LeavesOutTheTensorsThatTheModelDeclares) {
  expect_decays("model", {true, false, false});
}

TEST_P(RangeUpdateDecay, FollowsTheJobsPatternsInsteadOfTheModel) {
  expect_decays("none", {true, true, true});
  expect_decays("*.bias", {true, false, true});
  expect_decays("fc.*,*norm*", {false, false, false});
  expect_decays("fc.weight", {false, true, true});
}

TEST(NoDecay, PrintsWhatItReads) {
  for (const std::string text : {"model", "none", "*.bias,*norm*"}) {
    EXPECT_EQ(NoDecay::parse(text).to_string(), text);
  }
  EXPECT_EQ(NoDecay::parse("").to_string(), "none");
  EXPECT_EQ(NoDecay::parse("*.bias, a").to_string(), "*.bias,a");
}

}  // namespace
}  // namespace pushpull
