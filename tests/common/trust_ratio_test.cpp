#include "common/update/trust_ratio.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/layout/slice_map.h"
#include "common/update/optimizer.h"
#include "common/update/range_update.h"

namespace pushpull {
namespace {

using Floats = std::vector<float>;

constexpr double kLambDecay = 0.02;
constexpr int64_t kLambUpdates = 5;

// Tensors that begin and end inside blocks, of a part of a block to five of them; one that averages.
TensorTable ragged_table() {
  TensorTable table;
  const auto add = [&](const char* name, int64_t size) -> TensorInfo& {
    TensorInfo info;
    info.name = name;
    info.shape = {size};
    table.add(info);
    return table.tensors.back();
  };
  add("small", 700);
  add("large", 5000);
  add("bias", 130).decay = false;
  add("running", 400).rule = UpdateRule::kAverage;
  add("own", 2100).weight_decay = 0.3;
  add("plain", 900).weight_decay = 0.0;
  add("zero", 33);
  add("last", 3001);
  return table;
}

OptimizerOptions lamb_options() {
  OptimizerOptions options;
  options.kind = OptimizerKind::kLamb;
  options.weight_decay = kLambDecay;
  options.epsilon = 1e-6;
  return options;
}

// Weights, a gradient sum of four micro-batches, and both moments.
struct LambState {
  explicit LambState(const TensorTable& table) {
    const auto n = static_cast<size_t>(table.total);
    for (uint32_t v = 0; v < 4; ++v) {
      for (size_t i = 0; i < n; ++i) {
        const float x = normal(9, RandomStream::kDummyData, v, i);
        vectors[v].push_back(v == 3 ? x * x : x);
      }
    }
    for (const TensorInfo& tensor : table.tensors) {
      if (tensor.name != "zero") continue;
      std::fill_n(vectors[0].begin() + tensor.offset, tensor.size, 0.0F);
    }
  }
  Floats vectors[4];
};

UpdateInfo lamb_info() {
  UpdateInfo info;
  info.learning_rate = 0.1;
  info.divisor = 4.0;
  info.clip = 0.5;
  return info;
}

// The ratio by Algorithm 2 of You et al., in double.
double plain_ratio(const TensorInfo& tensor, const LambState& state) {
  const double decay = tensor.weight_decay.value_or(kLambDecay);
  double weights = 0.0;
  double update = 0.0;
  for (auto i = static_cast<size_t>(tensor.offset);
       i < static_cast<size_t>(tensor.offset + tensor.size); ++i) {
    const double x = state.vectors[0][i];
    const double g = state.vectors[1][i] / 4.0 * 0.5;
    const double m = (0.9 * state.vectors[2][i] + 0.1 * g) / (1 - std::pow(0.9, kLambUpdates));
    const double v =
        (0.999 * state.vectors[3][i] + 0.001 * g * g) / (1 - std::pow(0.999, kLambUpdates));
    const double u = m / (std::sqrt(v) + 1e-6) + decay * x;
    weights += x * x;
    update += u * u;
  }
  return std::sqrt(weights) / std::sqrt(update);
}

std::vector<double> ratios_of_slices(const TensorTable& table, const LambState& state,
                                     int64_t bytes, int servers) {
  const SliceMap map(table, bytes, servers);
  std::vector<TrustPart> parts;
  for (int slice = map.slices() - 1; slice >= 0; --slice) {  // in any order
    const Range elements = map.elements(slice);
    const RangeUpdate rules(table, elements, lamb_options());
    std::vector<TrustSquares> squares(static_cast<size_t>(rules.trust_pieces()));
    const float* at[4];
    for (size_t v = 0; v < 4; ++v) at[v] = state.vectors[v].data() + elements.lo;
    for (int64_t lo = 0; lo < elements.size(); lo += kBlockElements) {
      const Range block{lo, std::min(lo + kBlockElements, elements.size())};
      rules.trust_squares(block, lamb_info(), kLambUpdates, at[0], at[1] + lo,
                          std::span(at).subspan(2), squares.data());
    }
    rules.add_trust_parts(squares, map.blocks(slice), map.blocks(), parts);
  }
  return trust_ratios(table, lamb_options(), parts);
}

TEST(TrustRatio, IsThatOfThePapersAlgorithm) {
  const TensorTable table = ragged_table();
  const LambState state(table);
  const std::vector<double> got = ratios_of_slices(table, state, 4096, 2);
  ASSERT_EQ(got.size(), table.tensors.size());
  for (size_t t = 0; t < got.size(); ++t) {
    const TensorInfo& tensor = table.tensors[t];
    const bool scaled = tensor.name == "small" || tensor.name == "large" || tensor.name == "own" ||
                        tensor.name == "last";
    EXPECT_EQ(has_trust_ratio(lamb_options(), tensor), scaled || tensor.name == "zero");
    if (scaled) {
      EXPECT_NEAR(got[t] / plain_ratio(tensor, state), 1.0, 1e-6) << tensor.name;
      EXPECT_GT(std::abs(got[t] - 1.0), 0.01) << tensor.name << " would not show a missing ratio";
    } else {
      EXPECT_EQ(got[t], 1.0) << tensor.name;
    }
  }
}

TEST(TrustRatio, BitsDoNotDependOnSlicesAndServers) {
  const TensorTable table = ragged_table();
  const LambState state(table);
  const std::vector<double> want = ratios_of_slices(table, state, 1 << 20, 1);
  for (const int64_t bytes : {2048, 4096, 12288, 20480}) {
    for (const int servers : {1, 2, 3, 5}) {
      EXPECT_EQ(ratios_of_slices(table, state, bytes, servers), want) << bytes << " " << servers;
    }
  }
  const RangeUpdate whole(table, {0, table.total}, lamb_options());
  const std::vector<const float*> slots{state.vectors[2].data(), state.vectors[3].data()};
  EXPECT_EQ(trust_of_update(table, lamb_options(), whole, lamb_info(), kLambUpdates,
                            state.vectors[0].data(), state.vectors[1].data(), slots),
            want)
      << "a worker that updates by itself";
}

TEST(TrustRatio, ScalesTheUpdateOfEachTensor) {
  const TensorTable table = ragged_table();
  const LambState start(table);
  const RangeUpdate rules(table, {0, table.total}, lamb_options());
  const auto moved = [&](std::span<const double> trust) {
    LambState state = start;
    UpdateInfo info = lamb_info();
    info.trust = trust;
    float* const slots[] = {state.vectors[2].data(), state.vectors[3].data()};
    rules.apply({0, table.total}, info, kLambUpdates, state.vectors[0].data(),
                SumHalves(state.vectors[1].data()), slots, state.vectors[0].data());
    return state.vectors[0];
  };
  std::vector<double> trust;
  for (size_t t = 0; t < table.tensors.size(); ++t) trust.push_back(t % 2 == 0 ? 0.5 : 3.0);
  const Floats plain = moved({});
  const Floats scaled = moved(trust);
  for (size_t t = 0; t < trust.size(); ++t) {
    const TensorInfo& tensor = table.tensors[t];
    const double factor = tensor.rule == UpdateRule::kAverage ? 1.0 : trust[t];
    for (auto i = static_cast<size_t>(tensor.offset);
         i < static_cast<size_t>(tensor.offset + tensor.size); ++i) {
      const double by = plain[i] - start.vectors[0][i];
      ASSERT_NEAR(scaled[i] - start.vectors[0][i], factor * by, 2e-6) << tensor.name;
    }
  }
}

TEST(TrustRatio, PartsThatDoNotCoverATensorAreRefused) {
  TensorTable table;
  TensorInfo info;
  info.name = "weight";
  info.shape = {4 * kBlockElements};
  table.add(info);
  const auto why = [&](const std::vector<TrustPart>& parts) -> std::string {
    try {
      trust_ratios(table, lamb_options(), parts);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kProtocol);
      return e.what();
    }
    return "";
  };
  const TrustSquares one{4.0, 1.0};
  EXPECT_EQ(why({{0, {2, 4}, one}, {0, {0, 2}, one}}), "");
  EXPECT_EQ(trust_ratios(table, lamb_options(), std::vector<TrustPart>{{0, {0, 4}, one}}),
            std::vector<double>{2.0});
  const auto refused = testing::HasSubstr("do not cover");
  EXPECT_THAT(why({}), refused);
  EXPECT_THAT(why({{0, {0, 2}, one}}), refused);
  EXPECT_THAT(why({{0, {2, 4}, one}}), refused);
  EXPECT_THAT(why({{0, {0, 1}, one}, {0, {2, 4}, one}}), refused) << "a gap";
  EXPECT_THAT(why({{0, {0, 4}, one}, {0, {2, 4}, one}}), refused) << "twice";
  EXPECT_THAT(why({{0, {0, 3}, one}, {0, {3, 4}, one}}), refused) << "no node";
  EXPECT_THAT(why({{0, {-4, 4}, one}}), refused);
  EXPECT_THAT(why({{0, {0, 8}, one}}), refused);
  EXPECT_THAT(why({{1, {0, 4}, one}}), testing::HasSubstr("there is no tensor 1"));
  EXPECT_THAT(why({{-1, {0, 4}, one}}), testing::HasSubstr("there is no tensor -1"));
}

}  // namespace
}  // namespace pushpull
