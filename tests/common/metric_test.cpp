#include "common/layout/metric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace pushpull {
namespace {

TEST(Metric, EachNameIsThatOfOneMetric) {
  for (const Metric metric :
       {Metric::kAccuracy, Metric::kExactMatch, Metric::kPerplexity, Metric::kMeanSquaredError}) {
    EXPECT_EQ(metric_of(to_string(metric)), metric);
  }
  EXPECT_FALSE(metric_of("Accuracy"));
  EXPECT_FALSE(metric_of(""));
}

TEST(HeadResult, ValueIsAMeanOverCountedTargets) {
  const HeadSums sums{6.0, 3, 2.0};
  EXPECT_DOUBLE_EQ((HeadResult{{"a", Metric::kAccuracy, 1}, sums}.value().value()), 2.0 / 3.0);
  EXPECT_DOUBLE_EQ((HeadResult{{"a", Metric::kMeanSquaredError, 1}, sums}.value().value()),
                   2.0 / 3.0);
  EXPECT_DOUBLE_EQ((HeadResult{{"a", Metric::kPerplexity, 1}, sums}.value().value()),
                   std::exp(2.0 / 3.0));
  EXPECT_DOUBLE_EQ((HeadResult{{"a", Metric::kAccuracy, 1}, sums}.loss().value()), 2.0);
}

TEST(HeadResult, WithoutCountedTargetsHasNoValue) {
  const HeadResult none{{"a", Metric::kAccuracy, 1}, {1.0, 0, 0.0}};
  EXPECT_FALSE(none.value());
  EXPECT_FALSE(none.loss());
  EXPECT_EQ(none.text(), "-");
}

TEST(HeadResult, SharesAreShownInPercent) {
  EXPECT_EQ((HeadResult{{"a", Metric::kAccuracy, 1}, {0.0, 359, 353.0}}.text()), "98.33 %");
  EXPECT_EQ((HeadResult{{"a", Metric::kMeanSquaredError, 1}, {0.0, 4, 2.0}}.text()), "0.5000");
}

TEST(HeadSums, PartsAddUp) {
  HeadSums sums{1.0, 2, 1.0};
  sums.add({0.5, 3, 2.0});
  EXPECT_EQ(sums, (HeadSums{1.5, 5, 3.0}));
}

TEST(HeadWeights, SurviveBeingWritten) {
  const HeadWeights weights = HeadWeights::parse("start:0.1, end-position:2");
  using Pairs = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(weights.weights, (Pairs{{"start", 0.1}, {"end-position", 2.0}}));
  EXPECT_EQ(weights.to_string(), "start:0.1,end-position:2");
  EXPECT_EQ(HeadWeights::parse(weights.to_string()), weights);
  EXPECT_TRUE(HeadWeights::parse("").weights.empty());
}

}  // namespace
}  // namespace pushpull
