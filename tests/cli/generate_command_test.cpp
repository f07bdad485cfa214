// Drawing tokens from scores, and the window of a model that goes on with a text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>

#include "cli/commands.h"
#include "common/job/job.h"
#include "models/model.h"

namespace pushpull {
namespace {

using testing::Each;
using testing::ElementsAre;

const std::vector<float> kScores = {0.5F, 2.0F, -1.0F, 2.0F, 1.0F};

TEST(DrawToken, TakesTheFirstOfTheLargestAtTemperatureZero) {
  EXPECT_EQ(draw_token(kScores, {.temperature = 0.0, .top_k = 0, .seed = 9}, 4), 1);
}

TEST(DrawToken, DrawsAsOftenAsTheSoftmaxSays) {
  constexpr int64_t kDraws = 20'000;
  for (const double temperature : {0.5, 1.0, 3.0}) {
    std::array<double, 5> share{};
    for (int64_t i = 0; i < kDraws; ++i) {
      const int32_t token =
          draw_token(kScores, {.temperature = temperature, .top_k = 0, .seed = 3}, i);
      share.at(static_cast<size_t>(token)) += 1.0 / static_cast<double>(kDraws);
    }
    double sum = 0.0;
    for (const float score : kScores) sum += std::exp(static_cast<double>(score) / temperature);
    for (size_t i = 0; i < share.size(); ++i) {
      const double expected = std::exp(static_cast<double>(kScores[i]) / temperature) / sum;
      EXPECT_NEAR(share.at(i), expected, 0.015) << i << " at " << temperature;
    }
  }
}

TEST(DrawToken, TopKLeavesTheOthersOut) {
  for (int64_t i = 0; i < 500; ++i) {
    const int32_t token = draw_token(kScores, {.temperature = 2.0, .top_k = 2, .seed = 3}, i);
    EXPECT_TRUE(token == 1 || token == 3) << token;
  }
}

TEST(DrawToken, DependsOnSeedAndPlace) {
  const auto many = [](uint64_t seed) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < 50; ++i) {
      tokens.push_back(draw_token(kScores, {.temperature = 1.0, .top_k = 0, .seed = seed}, i));
    }
    return tokens;
  };
  EXPECT_EQ(many(1), many(1));
  EXPECT_NE(many(1), many(2));
  EXPECT_THAT(many(1), testing::Not(Each(many(1).front())));
}

// Scores the token after the latest known one highest, and records what it has seen.
class Counting final : public Model {
 public:
  Counting() { heads_ = {{"token", Metric::kPerplexity, 3}}; }
  float train(std::span<const float> /*weights*/, const Samples& /*samples*/,
              std::span<float> /*gradients*/, const GradientReady& /*ready*/,
              const WeightsNeeded& /*needed*/) override {
    return 0.0F;
  }
  void evaluate(std::span<const float> /*weights*/, const Samples& samples,
                std::span<HeadSums> /*sums*/) override {
    const int32_t* ids = as_ints(samples.block.data());
    seen.emplace_back(ids, ids + 3);
    scores_.assign(3 * 10, 0.0F);
    for (size_t i = 0; i < 3; ++i) scores_[i * 10 + static_cast<size_t>(ids[i] + 1) % 10] = 1.0F;
  }
  std::span<const float> scores() const override { return scores_; }
  std::string numerics() const override { return ""; }
  void choose(const std::string& /*choices*/) override {}

  std::vector<std::vector<int32_t>> seen;

 private:
  std::vector<float> scores_;
};

TEST(GenerateTokens, GoesOnFromTheLatestTokensThatFit) {
  Counting model;
  std::vector<int32_t> ids{4, 5};
  std::vector<int32_t> told;
  generate_tokens(model, {}, 3, 10, {.temperature = 0.0, .top_k = 0, .seed = 1}, 4, ids,
                  [&](int32_t token) { told.push_back(token); });
  EXPECT_THAT(ids, ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_THAT(told, ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(model.seen.front(), ElementsAre(4, 5, 0));
  EXPECT_THAT(model.seen.back(), ElementsAre(6, 7, 8));
}

}  // namespace
}  // namespace pushpull
