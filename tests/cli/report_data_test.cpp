#include "cli/report/report_data.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cli/report/report_links.h"

namespace pushpull {
namespace {

CompareRun run_of(const std::string& strategy, int64_t workers, double rate) {
  CompareRun run;
  run.strategy = strategy;
  run.workers = workers;
  run.samples_per_second = rate;
  return run;
}

CompareRun reaching(std::optional<double> seconds) {
  CompareRun run = run_of("sync", 1, 100);
  run.seconds_to_target = seconds;
  return run;
}

TEST(ReportData, ACellHasTheMedianOfItsSeeds) {
  CompareResult result;
  result.runs = {run_of("sync", 1, 100), run_of("sync", 1, 300), run_of("sync", 1, 110)};
  const ReportData data = report_data(result);
  ASSERT_EQ(data.links.size(), 1U);
  const Cell* one = data.links[0].find("sync", 1);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->rate->median, 110);
  EXPECT_EQ(one->rate->min, 100);
  EXPECT_EQ(one->rate->max, 300);
}

TEST(ReportData, ScalingComparesASeedWithItself) {
  CompareResult result;
  result.runs = {run_of("sync", 1, 100), run_of("sync", 1, 400), run_of("sync", 2, 150),
                 run_of("sync", 2, 400)};
  result.runs[1].seed = result.runs[3].seed = 8;
  EXPECT_EQ(report_data(result).links[0].find("sync", 2)->scaling, 1.25);
}

TEST(ReportData, WithoutOneWorkerThereIsNoScaling) {
  CompareResult result;
  result.runs = {run_of("sync", 2, 100), run_of("sync", 4, 300)};
  EXPECT_EQ(report_data(result).links[0].find("sync", 4)->scaling, std::nullopt);
}

TEST(ReportData, NonFiniteValuesAreInNoMedian) {
  CompareResult result;
  result.runs = {run_of("sync", 1, NAN), run_of("sync", 1, 100), run_of("async", 1, INFINITY)};
  const ReportData data = report_data(result);
  EXPECT_EQ(data.links[0].find("sync", 1)->rate->count, 1);
  EXPECT_FALSE(data.links[0].find("async", 1)->rate);
}

TEST(ReportData, ASeedWithoutTheTargetIsLaterThanAllOthers) {
  CompareResult result;
  result.runs = {reaching(3.0), reaching(std::nullopt), reaching(1.0)};
  Reached there = report_data(result).links[0].cells[0].seconds;
  EXPECT_EQ(there.reached, 2);
  EXPECT_EQ(there.asked, 3);
  EXPECT_EQ(there.median, 3.0);
  EXPECT_EQ(there.max, 3.0);
  result.runs.push_back(reaching(2.0));
  result.runs.back().failure = "killed";
  there = report_data(result).links[0].cells[0].seconds;
  EXPECT_EQ(there.reached, 2);
  EXPECT_EQ(there.asked, 4);
  EXPECT_EQ(there.median, std::nullopt);
  EXPECT_EQ(there.min, 1.0);
}

TEST(ReportData, StalenessIsTheMedianOfTheMeansOfTheSeeds) {
  CompareResult result;
  result.runs = {run_of("async", 2, 1), run_of("async", 2, 1)};
  result.runs[0].staleness = {{0, 2}, {1, 1}};
  result.runs[1].staleness = {{5, 1}, {9, 0}};
  const Cell cell = report_data(result).links[0].cells[0];
  EXPECT_DOUBLE_EQ(cell.staleness_mean.value(), (1.0 / 3 + 5.0) / 2);
  EXPECT_EQ(cell.staleness_max, 5);
}

TEST(ReportData, LoopbackIsTheFirstLink) {
  CompareResult result;
  result.runs = {run_of("sync", 1, 1), run_of("sync", 1, 1)};
  result.runs[0].link = "100mbit,5ms";
  const ReportData data = report_data(result);
  ASSERT_EQ(data.links.size(), 2U);
  EXPECT_EQ(data.links[0].link, "");
  EXPECT_EQ(data.links[1].link, "100mbit,5ms");
}

TEST(ReportData, AWinnerIsClearIfNoRangesOverlap) {
  CompareResult result;
  result.runs = {run_of("sync", 2, 100), run_of("sync", 2, 120), run_of("async", 2, 130),
                 run_of("async", 2, 140)};
  const auto winner_of = [&] {
    const ReportData data = report_data(result);
    const auto winner = fastest(data.links[0], 2);
    return std::pair(winner.value().best->strategy, winner->clear);
  };
  EXPECT_EQ(winner_of(), std::pair(std::string("async"), true));
  result.runs[1].samples_per_second = 131;
  EXPECT_EQ(winner_of(), std::pair(std::string("async"), false));
  result.runs[2].failure = "killed";  // one seed is left: no clear winner
  result.runs[1].samples_per_second = 120;
  EXPECT_EQ(winner_of(), std::pair(std::string("async"), false));
}

TEST(ReportData, FirstAtTheTargetIsNotClearIfASeedNeverReachedIt) {
  CompareResult result;
  for (const double seconds : {1.0, 1.1, 1.2}) result.runs.push_back(reaching(seconds));
  for (const double seconds : {2.0, 2.1, 2.2}) {
    result.runs.push_back(reaching(seconds));
    result.runs.back().strategy = "async";
  }
  const ReportData data = report_data(result);
  EXPECT_TRUE(first_at_target(data.links[0], 1).value().clear);
  result.runs[2].seconds_to_target.reset();
  const ReportData other = report_data(result);
  EXPECT_EQ(first_at_target(other.links[0], 1).value().best->strategy, "sync");
  EXPECT_FALSE(first_at_target(other.links[0], 1).value().clear);
}

CompareRun curve_of(const std::vector<std::pair<double, double>>& points) {
  CompareRun run;
  for (const auto& [seconds, accuracy] : points) {
    run.curve.push_back({.seconds = seconds,
                         .samples = 0,
                         .step = 0,
                         .test_value = accuracy,
                         .test_loss = std::nullopt,
                         .train_loss = std::nullopt});
  }
  return run;
}

std::vector<LinePoint> band_of(const std::vector<CompareRun>& runs, size_t limit = 100) {
  std::vector<const CompareRun*> pointers;
  for (const CompareRun& run : runs) pointers.push_back(&run);
  return band(
      pointers, [](const CurvePoint& p) { return p.seconds; },
      [](const CurvePoint& p) { return p.test_value; }, limit);
}

TEST(ReportBand, AValueHoldsUntilTheNextEvaluation) {
  const auto points = band_of({curve_of({{0, 0.1}, {2, 0.5}, {6, 0.9}}),
                               curve_of({{1, 0.2}, {3, 0.6}}), curve_of({{0, 0.3}, {4, 0.8}})});
  // from 1 on, when all seeds have a value: 1, 2, 3, 4, 6
  ASSERT_EQ(points.size(), 5U);
  EXPECT_EQ(points[0].x, 1);
  EXPECT_EQ(points[0].y, 0.2);
  EXPECT_EQ(points[2].x, 3);
  EXPECT_EQ(points[2].y, 0.5);  // median of 0.5, 0.6, 0.3
  EXPECT_EQ(points[2].min, 0.3);
  EXPECT_EQ(points[2].max, 0.6);
  EXPECT_EQ(points[4].y, 0.8);  // median of 0.9, 0.6, 0.8; two seeds have ended
}

TEST(ReportBand, ASeedEndsAtItsFirstNonFiniteValue) {
  const auto points =
      band_of({curve_of({{0, 0.1}, {1, 0.2}, {2, NAN}, {3, 0.4}}), curve_of({{0, 0.3}, {3, 0.5}})});
  ASSERT_EQ(points.size(), 3U);
  EXPECT_EQ(points[1].max, 0.3);
  EXPECT_EQ(points[2].min, 0.5);
  EXPECT_EQ(points[2].max, 0.5);
}

TEST(ReportBand, LongCurvesAreThinnedAndKeepBothEnds) {
  std::vector<std::pair<double, double>> long_curve;
  for (int i = 0; i < 5000; ++i) long_curve.emplace_back(i, i / 5000.0);
  const auto points = band_of({curve_of(long_curve)}, 40);
  ASSERT_EQ(points.size(), 40U);
  EXPECT_EQ(points.front().x, 0);
  EXPECT_EQ(points.back().x, 4999);
}

TEST(ReportBand, WithoutACurveThereIsNoBand) {
  EXPECT_TRUE(band_of({}).empty());
  EXPECT_TRUE(band_of({curve_of({})}).empty());
  EXPECT_EQ(band_of({curve_of({{1, 0.5}})}).size(), 1U);
}

TEST(ReportLinks, TheModelMatchesTheTextbook) {
  // 100 MB over 10 MB/s: a ring of 4 moves 2 * 3/4 of it
  EXPECT_DOUBLE_EQ(ring_seconds(100e6, 4, 10e6), 15);
  EXPECT_DOUBLE_EQ(ring_seconds(100e6, 1, 10e6), 0);
  EXPECT_DOUBLE_EQ(server_seconds(100e6, 4, 1, 10e6), 40);
  EXPECT_DOUBLE_EQ(server_seconds(100e6, 4, 2, 10e6), 20);
  // more servers than workers: the worker's own link is the bottleneck
  EXPECT_DOUBLE_EQ(server_seconds(100e6, 4, 8, 10e6), 10);
}

}  // namespace
}  // namespace pushpull
