#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "cli/compare/compare_output.h"
#include "common/base/text.h"

namespace pushpull::compare_table_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

CompareRun run_of(const std::string& strategy, int64_t workers, uint64_t seed, double rate) {
  CompareRun run;
  run.strategy = strategy;
  run.workers = workers;
  run.seed = seed;
  run.samples_per_second = rate;
  run.steps = 10'000;
  run.seconds = 123.4;
  run.test_value = 0.95 + 0.01 * static_cast<double>(seed);
  run.test_loss = 0.1234;
  run.split = {0.01234, 0.00234, 0.00345, 0.00456};
  run.staleness = {{0, 30}, {12345, 1}};
  run.bytes_pushed = run.bytes_pulled = 10'000'000'000;
  run.cpu_seconds = {{"server", 1234.5}, {"worker", 1234.5}};
  run.peak_mib = {{"server", 1234.5}, {"worker", 1234.5}};
  return run;
}

CompareResult two_seeds() {
  CompareResult result;
  result.strategies = {"sync", "allreduce:gloo"};
  result.workers = {1, 2};
  for (const uint64_t seed : {1, 2}) {
    for (const int64_t workers : {1, 2}) {
      for (const std::string& strategy : result.strategies) {
        const double rate = 100000.0 * static_cast<double>(workers) + static_cast<double>(seed);
        result.runs.push_back(run_of(strategy, workers, seed, rate));
      }
    }
  }
  return result;
}

std::string line_with(const std::string& table, const std::string& start) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(start) != std::string::npos) return line;
  }
  return "";
}

TEST(CompareTable, ARowPerStrategyAndNumberOfWorkersWithMedianAndRange) {
  const std::string table = speed_table(two_seeds());
  EXPECT_EQ(std::ranges::count(table, '\n'), 2 + 4);
  EXPECT_THAT(line_with(table, "sync                  2"),
              AllOf(HasSubstr("200002 (200001-200002)"), HasSubstr("2.00"), HasSubstr("12.34"),
                    HasSubstr("398.2/12345"), HasSubstr("2.000"), HasSubstr("1234/1234")));
}

TEST(CompareTable, ComparedCodecsHaveTheirOwnRowsAndSayTheBytesPushed) {
  CompareResult result = two_seeds();
  result.codecs = {"fp32", "int8"};
  for (CompareRun& run : result.runs) {
    run.codec = run.seed % 2 == 0 ? "int8" : "fp32";
    run.steps = 10;
    run.bytes_pushed = run.codec == "int8" ? 2'500'000 : 10'000'000;
    run.bytes_pulled = 10'000'000;
  }
  const std::string table = speed_table(result);
  EXPECT_EQ(std::ranges::count(table, '\n'), 2 + 8);
  EXPECT_THAT(table, AllOf(HasSubstr("codec"), HasSubstr("pushed/all")));
  EXPECT_THAT(line_with(table, "sync                  2   int8"), HasSubstr("0.250/1.250"));
  EXPECT_THAT(line_with(table, "sync                  2   fp32"), HasSubstr("1.000/2.000"));
  EXPECT_THAT(learning_table(result), HasSubstr("codec"));
}

TEST(CompareTable, FitsATerminal) {
  CompareResult result = two_seeds();
  result.target = 0.97;
  result.tuning = {result.runs[0]};
  for (CompareRun& run : result.runs) {
    run.tuned = "lr=0.00015";
    run.seconds_to_target = 1234.56 + static_cast<double>(run.seed);
    run.samples_to_target = 1'000'000 + static_cast<int64_t>(run.seed);
  }
  for (const size_t columns : {80U, 140U}) {
    for (const std::string& table : {speed_table(result, columns), learning_table(result, columns),
                                     sync_table(result, columns)}) {
      std::istringstream lines(table);
      for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), columns) << line;
    }
  }
  const std::string narrow = speed_table(result, 80);
  EXPECT_THAT(line_with(narrow, "sync                  2"), Not(HasSubstr("1234/1234")));
  EXPECT_THAT(narrow, HasSubstr("  1234/1234")) << "it follows below";
  EXPECT_THAT(line_with(narrow.substr(narrow.rfind("strategy")), "sync                  2"),
              ::testing::EndsWith(" 2"))
      << "the runs, beside the names again";
}

TEST(CompareTable, FailuresAreShownAsFailures) {
  CompareResult result = two_seeds();
  for (CompareRun& run : result.runs) {
    if (run.strategy == "sync" && run.workers == 2) run.failure = "lost";
  }
  result.runs[1].failure = "lost";  // one of two
  for (const std::string& table : {speed_table(result), learning_table(result)}) {
    EXPECT_THAT(line_with(table, "sync                  2"),
                AllOf(HasSubstr("FAILED"), HasSubstr("2 of 2 FAILED"), Not(HasSubstr("0.00"))));
    EXPECT_THAT(line_with(table, "allreduce:gloo        1"),
                AllOf(HasSubstr("1 of 2 FAILED"), Not(HasSubstr(" FAILED  "))));
  }
}

TEST(CompareTable, AnUnreachedTargetIsNeverANumber) {
  CompareResult result = two_seeds();
  EXPECT_THAT(learning_table(result), Not(HasSubstr("reached")));
  result.target = 0.97;
  EXPECT_THAT(line_with(learning_table(result), "sync                  1"),
              AllOf(HasSubstr("never"), HasSubstr("0 of 2")));
  result.runs[0].seconds_to_target = 2.0;
  result.runs[0].samples_to_target = 640;
  EXPECT_THAT(line_with(learning_table(result), "sync                  1"),
              AllOf(HasSubstr("never (2.00-never)"), HasSubstr("1 of 2")));
}

TEST(CompareTable, AnotherMetricThanAccuracyIsShownAsItIs) {
  CompareResult result = two_seeds();
  result.metric = "perplexity";
  for (CompareRun& run : result.runs) run.test_value = 6.5;
  const std::string table = learning_table(result);
  EXPECT_THAT(table, AllOf(HasSubstr("perplexity"), HasSubstr("6.5000"), Not(HasSubstr("%"))));
}

TEST(CompareTable, AFailedRunHasNotReachedTheTarget) {
  CompareResult result = two_seeds();
  result.target = 0.97;
  for (CompareRun& run : result.runs) run.seconds_to_target = 2.0;
  result.runs[0].seconds_to_target.reset();
  result.runs[0].failure = "lost";
  EXPECT_THAT(line_with(learning_table(result), "sync                  1"),
              AllOf(HasSubstr("never (2.00-never)"), HasSubstr("1 of 2 ")));
}

TEST(CompareTable, LinksHaveTheirOwnRows) {
  CompareResult result = two_seeds();
  EXPECT_THAT(speed_table(result) + learning_table(result), Not(HasSubstr("loopback")));
  for (const CompareRun& run : two_seeds().runs) {
    result.runs.push_back(run);
    result.runs.back().link = "100mbit,5ms";
  }
  for (const std::string& table : {speed_table(result), learning_table(result)}) {
    EXPECT_THAT(table, HasSubstr("  link"));
    EXPECT_NE(line_with(table, "sync                  2     loopback"), "");
    EXPECT_NE(line_with(table, "sync                  2  100mbit,5ms"), "");
  }
}

TEST(CompareTable, UnmeasuredValuesAreNotZero) {
  CompareResult result = two_seeds();
  for (CompareRun& run : result.runs) {
    run.split = {};
    run.cpu_seconds.clear();
  }
  EXPECT_THAT(speed_table(result), Not(HasSubstr("0.00  ")));
}

TEST(CompareTable, EachStrategyIsComparedWithSyncSeedBySeed) {
  CompareResult result = two_seeds();
  result.target = 0.97;
  for (CompareRun& run : result.runs) {
    const bool sync = run.strategy == "sync";
    const bool first = run.seed == 1;
    // each seed twice and four times as fast, although the ranges of both overlap
    run.samples_per_second = first ? (sync ? 100 : 200) : (sync ? 150 : 600);
    run.test_value = sync ? 0.95 : 0.90;
    run.samples = 1000;
    run.samples_to_target = sync ? 500 : 250;
    run.seconds_to_target = sync ? 2.0 : 1.0;
    run.cpu_seconds = {{"server", 3.0}, {"worker", 5.0}};
    run.bytes_pushed = run.bytes_pulled = 1'000'000;
  }
  EXPECT_THAT(line_with(sync_table(result), "allreduce:gloo        2"),
              AllOf(HasSubstr("3.00 (2.00-4.00)"), HasSubstr("-5.00"), HasSubstr("0.50  "),
                    HasSubstr("2.00     0.50  0.50     0.50")));
  EXPECT_THAT(line_with(sync_table(result), "sync                  2"),
              AllOf(HasSubstr("4.00"), HasSubstr("1.00")));
  for (CompareRun& run : result.runs) {
    if (run.strategy == "sync" && run.workers == 2 && run.seed == 1) run.failure = "lost";
  }
  EXPECT_THAT(line_with(sync_table(result), "allreduce:gloo        2"),
              AllOf(HasSubstr("4.00"), Not(HasSubstr("2.00-"))));
  for (CompareRun& run : result.runs) run.strategy = "async";
  EXPECT_EQ(sync_table(result), "");
}

TEST(CompareTable, SpreadsAndDurationsAreReadable) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  EXPECT_EQ(spread_text({}, 2), "-");
  EXPECT_EQ(spread_text({1.234}, 2), "1.23");
  EXPECT_EQ(spread_text({1.0, 2.0, 4.0}, 1), "2.0 (1.0-4.0)");
  EXPECT_EQ(spread_text({3.0, 3.0}, 0), "3");
  EXPECT_EQ(spread_text({-1.0, 0.0, 1.0}, 0), "0 (-1 to 1)");
  EXPECT_EQ(spread_text({123.456}, 2), "123.5");
  EXPECT_EQ(spread_text({1234.56}, 2), "1235");
  EXPECT_EQ(spread_text({kNever, kNever}, 2), "never");
  EXPECT_EQ(spread_text({1.0, 2.0, kNever}, 1), "2.0 (1.0-never)");
  EXPECT_EQ(clock_text(65), "1:05");
  EXPECT_EQ(clock_text(7380), "2:03:00");
  EXPECT_EQ(clock_text(-1), "?");
}

}  // namespace
}  // namespace pushpull::compare_table_test
