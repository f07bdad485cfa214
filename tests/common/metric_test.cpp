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

TEST(MeasureName, NamesAHeadAndItsMetricOrLoss) {
  for (const char* text : {"loss", "metric", "start/exact-match", "f_1/value", "WER/cost"}) {
    ASSERT_TRUE(MeasureName::parse(text)) << text;
    EXPECT_EQ(MeasureName::parse(text)->to_string(), text);
  }
  for (const char* text : {"", "f1", "/loss", "a./loss", "a/b/loss", "loss/"}) {
    EXPECT_FALSE(MeasureName::parse(text)) << text;
  }
  const std::vector<HeadInfo> heads = {{"label", Metric::kExactMatch}, {"wer", Metric::kCost}};
  const auto found = [&](const char* text) {
    return find_measure(*MeasureName::parse(text), heads);
  };
  EXPECT_EQ(found("loss")->head, 0U);
  EXPECT_TRUE(found("loss")->is_loss);
  EXPECT_TRUE(found("metric")->higher_is_better);
  EXPECT_TRUE(found("exact-match"));
  EXPECT_EQ(found("wer/cost")->head, 1U);
  EXPECT_FALSE(found("wer/cost")->higher_is_better);
  EXPECT_FALSE(found("wer/value"));
  EXPECT_FALSE(found("f1/value"));
  EXPECT_FALSE(find_measure({}, {}));
  EXPECT_EQ(measures_of(heads), "label/loss, label/exact-match, wer/loss, wer/cost");
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
