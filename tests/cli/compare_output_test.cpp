#include "cli/compare/compare_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

CompareRun good_run() {
  CompareRun run;
  run.strategy = "sync";
  run.workers = 1;
  run.servers = 2;
  run.seed = 18446744073709551615U;
  run.out = "runs/sync-w1-s7";
  run.initial_weights_sha256 = "aa";
  run.data_order_sha256 = "bb";
  run.steps = 10;
  run.samples = 1280;
  run.other_cores = 0.25;
  run.samples_per_second = 1280.5;
  run.test_value = 0.75;
  run.seconds_to_target = 1.5;
  run.samples_to_target = 640;
  run.split = {0.01, 0.002, 0.003, 0.004};
  run.staleness = {{0, 3}, {2, 1}};
  run.bytes_pushed = 100;
  run.bytes_pulled = 60;
  run.cpu_seconds = {{"server", 0.5}, {"worker", 1.5}};
  run.peak_mib = {{"server", 10.0}};
  run.curve = {{0.5, 320, 5, 0.5, 0.9, std::nullopt}};
  return run;
}

CompareRun failed_run() {
  CompareRun run = good_run();
  run.strategy = "async";
  run.failure = "[train] loss, as \"seen\", is nan";
  run.exit_code = 7;
  return run;
}

CompareResult result_of(std::vector<CompareRun> runs) {
  CompareResult result;
  result.command = "pushpull compare";
  result.cores = 2;
  result.strategies = {"sync", "async"};
  result.workers = {1};
  result.notes = {"a note"};
  result.runs = std::move(runs);
  return result;
}

TEST(CompareOutput, JsonHasOneEntryPerRunWithAllMeasurements) {
  const json whole = json::parse(compare_json(result_of({good_run()})));
  EXPECT_EQ(whole["command"], "pushpull compare");
  EXPECT_EQ(whole["notes"], json::array({"a note"}));
  EXPECT_TRUE(whole["commit"].is_null()) << "of an unknown commit";
  ASSERT_EQ(whole["runs"].size(), 1U);
  const json& run = whole["runs"][0];
  EXPECT_EQ(run["strategy"], "sync");
  EXPECT_EQ(run["workers"], 1);
  EXPECT_EQ(run["servers"], 2);
  EXPECT_EQ(run["seed"], 18446744073709551615U);
  EXPECT_EQ(run["initial_weights_sha256"], "aa");
  EXPECT_EQ(run["data_order_sha256"], "bb");
  EXPECT_EQ(run["samples_per_second"], 1280.5);
  EXPECT_EQ(run["scaling"], 1.0);
  EXPECT_EQ(run["test_accuracy"], 0.75);
  EXPECT_EQ(run["seconds_to_target"], 1.5);
  EXPECT_EQ(run["samples_to_target"], 640);
  EXPECT_EQ(run["cpu_seconds"], 2.0);
  EXPECT_EQ(run["cpu_seconds_per_role"]["server"], 0.5);
  EXPECT_EQ(run["bytes_pushed"], 100);
  EXPECT_EQ(run["bytes_pulled"], 60);
  EXPECT_EQ(run["bytes_per_step"], 16.0);
  EXPECT_EQ(run["split"]["wait"], 0.003);
  EXPECT_EQ(run["staleness"]["mean"], 0.5);
  EXPECT_EQ(run["staleness"]["histogram"]["2"], 1);
  EXPECT_EQ(run["peak_mib"]["server"], 10.0);
  EXPECT_EQ(run["other_cores"], 0.25);
  EXPECT_EQ(run["cpu_seconds_to_target"], 1.0);
  EXPECT_EQ(run["bytes_to_target"], 80.0);
  EXPECT_EQ(run["curve"][0]["test_accuracy"], 0.5);
  EXPECT_TRUE(run["curve"][0]["train_loss"].is_null());
  EXPECT_TRUE(run["failure"].is_null());
}

TEST(CompareOutput, ATargetOfAnotherMeasureHasItsName) {
  CompareResult result = result_of({good_run()});
  result.target = 0.9;
  EXPECT_EQ(json::parse(compare_json(result))["target_accuracy"], 0.9);
  EXPECT_EQ(target_label(result), "0.9");
  result.target_measure = "f1/value";
  const json whole = json::parse(compare_json(result));
  EXPECT_EQ(whole["target"], 0.9);
  EXPECT_EQ(whole["target_measure"], "f1/value");
  EXPECT_TRUE(whole["target_accuracy"].is_null());
  EXPECT_EQ(target_label(result), "f1/value 0.9");
  EXPECT_THAT(learning_table(result), HasSubstr("seconds to f1/value 0.9"));
  EXPECT_THAT(compare_page(result), HasSubstr("f1/value 0.9"));
}

TEST(CompareOutput, AnotherMetricThanAccuracyHasItsNameAndNoAccuracy) {
  CompareRun run = good_run();
  run.metric = "perplexity";
  run.test_value = 6.5;
  CompareResult result = result_of({run});
  result.metric = "perplexity";
  result.target = 7.0;
  const json whole = json::parse(compare_json(result));
  EXPECT_EQ(whole["metric"], "perplexity");
  EXPECT_EQ(whole["target"], 7.0);
  EXPECT_TRUE(whole["target_accuracy"].is_null());
  const json& entry = whole["runs"][0];
  EXPECT_EQ(entry["metric"], "perplexity");
  EXPECT_EQ(entry["test_value"], 6.5);
  EXPECT_TRUE(entry["test_accuracy"].is_null());
  EXPECT_TRUE(entry["curve"][0]["test_accuracy"].is_null());
  EXPECT_EQ(entry["curve"][0]["test_value"], 0.5);
}

TEST(CompareOutput, MissingValuesAreNullAndNeverANumber) {
  CompareRun run = good_run();
  run.seconds_to_target.reset();
  run.samples_to_target.reset();
  run.test_loss = std::nan("");
  run.split = {};
  run.cpu_seconds.clear();
  run.workers = 2;  // no run with one worker to scale against
  const json entry = json::parse(compare_json(result_of({run})))["runs"][0];
  for (const char* key :
       {"seconds_to_target", "samples_to_target", "test_loss", "split", "cpu_seconds", "scaling"}) {
    ASSERT_TRUE(entry.contains(key)) << key;
    EXPECT_TRUE(entry[key].is_null()) << key;
  }
}

TEST(CompareOutput, AFailedRunHasAReasonAndNoFigures) {
  const json whole = json::parse(compare_json(result_of({good_run(), failed_run()})));
  const json& good = whole["runs"][0];
  const json& failed = whole["runs"][1];
  EXPECT_EQ(failed["failure"], failed_run().failure);
  EXPECT_EQ(failed["exit_code"], 7);
  EXPECT_TRUE(failed["samples_per_second"].is_null());
  EXPECT_TRUE(failed["test_accuracy"].is_null());
  EXPECT_EQ(failed.size(), good.size()) << "both have the same fields";
}

TEST(CompareOutput, TriesAreNotListedAsRuns) {
  CompareResult result = result_of({good_run()});
  result.tuning = {good_run(), good_run()};
  const json whole = json::parse(compare_json(result));
  EXPECT_EQ(whole["runs"].size(), 1U);
  EXPECT_EQ(whole["tuning"].size(), 2U);
}

TEST(CompareOutput, BytesThatAreNotTextKeepTheJsonValid) {
  CompareResult result = result_of({});
  result.command = "pushpull compare --out \xff";
  EXPECT_THAT(json::parse(compare_json(result))["command"].get<std::string>(), HasSubstr("--out "));
}

TEST(CompareOutput, CsvHasAHeaderAndOneRowPerRun) {
  const std::string csv = compare_csv(result_of({good_run(), failed_run(), good_run()}));
  EXPECT_EQ(std::ranges::count(csv, '\n'), 4);
  EXPECT_THAT(csv, StartsWith("strategy,workers,servers,seed,"));
  EXPECT_THAT(csv, HasSubstr("\"[train] loss, as \"\"seen\"\", is nan\""));
  EXPECT_THAT(csv, HasSubstr("\nsync,1,2,18446744073709551615,,,,,,0,1280.5,1,10,"));
}

TEST(CompareOutput, MissingValuesAreEmptyInCsv) {
  const std::string header = compare_csv(result_of({}));
  const std::string csv = compare_csv(result_of({failed_run()}));
  const std::string row = csv.substr(header.size());
  // the reason contains two commas
  EXPECT_EQ(std::ranges::count(row, ','), std::ranges::count(header, ',') + 2);
  EXPECT_THAT(row, HasSubstr(",7,,,,,"));
}

TEST(CompareOutput, WritesBothFiles) {
  const ScratchFolder folder;
  const CompareResult result = result_of({good_run()});
  write_results(result, folder.path());
  EXPECT_EQ(read_bytes(folder / "compare.json"), compare_json(result));
  EXPECT_EQ(read_bytes(folder / "compare.csv"), compare_csv(result));
  EXPECT_THROW(write_results(result, folder / "nowhere"), Error);
}

}  // namespace
}  // namespace pushpull
