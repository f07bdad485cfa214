#include "cli/report/compare_result.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

CompareRun run_of(const std::string& strategy, int64_t workers, uint64_t seed, double rate) {
  CompareRun run;
  run.strategy = strategy;
  run.workers = workers;
  run.seed = seed;
  run.samples_per_second = rate;
  return run;
}

TEST(CompareResult, ASpreadIsTheMedianWithMinimumAndMaximum) {
  EXPECT_FALSE(spread({}));
  const auto odd = spread({3, 1, 2});
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->median, 2);
  EXPECT_EQ(odd->min, 1);
  EXPECT_EQ(odd->max, 3);
  EXPECT_EQ(odd->count, 3);
  EXPECT_EQ(spread({4, 1, 2, 3})->median, 2.5);
  EXPECT_EQ(spread({5})->median, 5);
}

TEST(CompareResult, RowsAreStrategiesWithTheirCodecsInTheGivenOrder) {
  CompareResult result;
  result.strategies = {"sync", "async"};
  EXPECT_EQ(row_names(result), (std::vector<std::string>{"sync", "async"}));
  result.codecs = {"int8", "fp32"};
  for (const char* strategy : {"async", "sync"}) {
    for (const char* codec : {"fp32", "int8"}) {
      result.runs.push_back(run_of(strategy, 1, 7, 100));
      result.runs.back().codec = codec;
    }
  }
  result.runs.pop_back();
  result.runs.push_back(run_of("ssp:2", 1, 7, 100));
  EXPECT_EQ(row_names(result),
            (std::vector<std::string>{"sync fp32", "async int8", "async fp32", "ssp:2"}));
  EXPECT_EQ(variant_name(result.runs[0]), "async fp32, 1 worker");
}

TEST(CompareResult, RowsNameTheStages) {
  CompareResult result;
  result.strategies = {"sync"};
  result.stages = {2, 1};
  for (const int64_t stages : {1, 2}) {
    result.runs.push_back(run_of("sync", 2, 7, 100));
    result.runs.back().stages = stages;
  }
  EXPECT_EQ(row_names(result), (std::vector<std::string>{"sync, 2 stages", "sync, 1 stage"}));
  EXPECT_EQ(variant_name(result.runs[1]), "sync, 2 stages, 2 workers");
  EXPECT_FALSE(scaling(result, result.runs[1])) << "one worker is no group of two";
  result.runs[1].codec = "int8";
  EXPECT_EQ(row_name(result.runs[1]), "sync int8, 2 stages");
}

TEST(CompareResult, ScalingComparesTheSameStrategyAndSeed) {
  CompareResult result;
  result.runs = {run_of("sync", 1, 7, 100), run_of("sync", 1, 8, 200), run_of("async", 1, 7, 50),
                 run_of("sync", 2, 7, 150), run_of("sync", 2, 8, 150), run_of("ssp:2", 2, 7, 1)};
  EXPECT_EQ(scaling(result, result.runs[3]), 1.5);
  EXPECT_EQ(scaling(result, result.runs[4]), 0.75);
  EXPECT_EQ(scaling(result, result.runs[0]), 1.0);
  EXPECT_FALSE(scaling(result, result.runs[5])) << "without a run with one worker";
  result.runs[3].link = "100mbit,5ms";
  EXPECT_FALSE(scaling(result, result.runs[3])) << "without a run with one worker over this link";
  result.runs[3].link.clear();
  result.runs[3].codec = "int8";
  EXPECT_FALSE(scaling(result, result.runs[3])) << "without a run with one worker and this codec";
  result.runs[3].codec.clear();
  result.runs[0].failure = "lost";
  EXPECT_FALSE(scaling(result, result.runs[3])) << "against a failed run";
  EXPECT_FALSE(scaling(result, result.runs[0]));
}

TEST(CompareResult, BytesPerStepCountBothDirections) {
  CompareRun run;
  EXPECT_EQ(bytes_per_step(run), 0.0);
  run.steps = 10;
  run.bytes_pushed = 100;
  run.bytes_pulled = 50;
  EXPECT_EQ(bytes_per_step(run), 15.0);
}

TEST(CompareResult, StalenessIsWeightedByUpdates) {
  EXPECT_EQ(summarize({}).mean, 0.0);
  const StalenessSummary summary = summarize({{0, 30}, {4, 10}});
  EXPECT_EQ(summary.mean, 1.0);
  EXPECT_EQ(summary.max, 4);
}

TEST(CompareResult, OneWorkerIsInTheSingular) {
  EXPECT_EQ(variant_name("ssp:4", 1, "1gbit,1ms"), "ssp:4, 1 worker over 1gbit,1ms");
  EXPECT_EQ(variant_name(run_of("sync", 2, 7, 1)), "sync, 2 workers");
}

}  // namespace
}  // namespace pushpull
