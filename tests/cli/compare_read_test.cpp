#include "cli/report/compare_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ps/report/report.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSummary = R"({
  "strategy": "async", "steps": 40, "samples": 2560, "seconds": 2.0, "samples_per_second": 1280.0,
  "train_loss": 0.5, "test_loss": null, "test_accuracy": 0.9,
  "initial_weights_sha256": "aa", "data_order_sha256": "bb", "weights_sha256": "cc",
  "staleness": {"max": 3, "mean": 0.5, "histogram": {"0": 30, "3": 10, "x": 1, "4": "many"}},
  "bytes_pushed": 1000, "bytes_pulled": 2000, "pushes_applied": 80, "pushes_dropped": 1,
  "cpu_seconds": {"server": 0.5, "worker": 1.5}, "peak_rss_mib": {"server": 10.5, "worker": 20},
  "split": {"compute": 0.01, "push": 0.002, "wait": 0.003, "pull": 0.004}
})";
constexpr const char* kMetrics =
    R"({"seconds":0.1,"step":3,"samples":192,"loss":2.0}
{"seconds":0.5,"step":13,"samples":832,"loss":1.0,"test_step":10,"test_loss":0.9,"test_correct":5,"test_total":10}
{"seconds":1.5,"step":20,"samples":1280,"loss":null,"test_step":20,"test_loss":null,"test_correct":9,"test_total":10}
)";

TEST(CompareRead, FillsAllFieldsFromASummary) {
  const ScratchFolder folder;
  write_bytes(folder / "summary.json", kSummary);
  write_bytes(folder / "metrics.jsonl", kMetrics);
  CompareRun run;
  read_run(folder.path(), 64, run);
  EXPECT_EQ(run.failure, "");
  EXPECT_EQ(run.initial_weights_sha256 + run.data_order_sha256 + run.weights_sha256, "aabbcc");
  EXPECT_EQ(run.steps, 40);
  EXPECT_EQ(run.samples, 2560);
  EXPECT_EQ(run.seconds, 2.0);
  EXPECT_EQ(run.samples_per_second, 1280.0);
  EXPECT_EQ(run.train_loss, 0.5);
  EXPECT_FALSE(run.test_loss);
  EXPECT_EQ(run.test_value, 0.9);
  EXPECT_EQ(run.staleness, (std::map<int64_t, int64_t>{{0, 30}, {3, 10}}));
  EXPECT_EQ(run.bytes_pushed, 1000);
  EXPECT_EQ(run.bytes_pulled, 2000);
  EXPECT_EQ(run.pushes_applied, 80);
  EXPECT_EQ(run.pushes_dropped, 1);
  EXPECT_EQ(run.cpu_seconds.at("worker"), 1.5);
  EXPECT_EQ(run.peak_mib.at("server"), 10.5);
  EXPECT_EQ(run.split.compute, 0.01);
  EXPECT_EQ(run.split.pull, 0.004);
  EXPECT_EQ(run.curve.size(), 2U);
}

TEST(CompareRead, ReadsTheSummaryThatAServerWrites) {
  const ScratchFolder folder;
  RunFigures summary;
  summary.strategy = "sync";
  summary.end_step = 10;
  summary.samples_per_second = 640.0;
  summary.evaluation = Evaluation{10, {{{"label", Metric::kAccuracy, 1}, {1.0, 4, 3.0}}}};
  summary.staleness = {{0, 10}};
  {
    Report report(folder.path(), ProgressStyle::kPlain);
    const auto no_wait = [](const std::string& /*verb*/, const std::string& /*path*/) {};
    report.begin(report.open_files("", false, no_wait), 0);
    RunFigures moment;
    moment.seconds = 1.0;
    moment.step = moment.end_step = 10;
    moment.evaluation = summary.evaluation;
    report.moment(moment);
    report.write_summary(summary, no_wait);
  }
  CompareRun run;
  read_run(folder.path(), 64, run);
  EXPECT_EQ(run.failure, "");
  EXPECT_EQ(run.samples_per_second, 640.0);
  EXPECT_EQ(run.test_value, 0.75);
  ASSERT_EQ(run.curve.size(), 1U);
  EXPECT_EQ(run.curve[0].test_value, 0.75);
  EXPECT_EQ(run.curve[0].step, 10);
}

TEST(CompareRead, ARunWithoutASummaryHasFailed) {
  const ScratchFolder folder;
  CompareRun run;
  read_run(folder.path(), 64, run);
  EXPECT_THAT(run.failure, AllOf(HasSubstr("summary.json"), Not(HasSubstr("\n"))));
}

TEST(CompareRead, AnImplausibleSummaryIsAFailure) {
  for (const char* text : {"", "{", "[]", "null", "{}", R"({"samples_per_second": "fast"})",
                           R"({"samples_per_second": 1e999})", "\xff\xfe"}) {
    const ScratchFolder folder;
    write_bytes(folder / "summary.json", text);
    CompareRun run;
    read_run(folder.path(), 64, run);
    EXPECT_THAT(run.failure, HasSubstr("damaged")) << text;
  }
}

TEST(CompareRead, FieldsOfAnotherTypeAreIgnored) {
  const ScratchFolder folder;
  write_bytes(folder / "summary.json",
              R"({"samples_per_second": 1, "steps": "many", "staleness": [1], "cpu_seconds": 3,
                  "split": {"compute": null}, "test_accuracy": true, "weights_sha256": 5,
                  "peak_rss_mib": {"server": "big"}, "bytes_pushed": 1.5})");
  CompareRun run;
  read_run(folder.path(), 64, run);
  EXPECT_EQ(run.failure, "");
  EXPECT_EQ(run.steps, 0);
  EXPECT_TRUE(run.staleness.empty());
  EXPECT_TRUE(run.cpu_seconds.empty());
  EXPECT_TRUE(run.peak_mib.empty());
  EXPECT_FALSE(run.test_value);
  EXPECT_EQ(run.weights_sha256, "");
  EXPECT_EQ(run.bytes_pushed, 0);
  EXPECT_TRUE(run.curve.empty());
}

TEST(CompareRead, APointCountsTheSamplesOfTheEvaluatedWeights) {
  const auto curve = read_curve(kMetrics, 64);
  ASSERT_EQ(curve.size(), 2U);
  EXPECT_EQ(curve[0].step, 10);
  EXPECT_EQ(curve[0].samples, 640) << "at step 10, although training was at 13";
  EXPECT_EQ(curve[0].seconds, 0.5);
  EXPECT_EQ(curve[0].test_value, 0.5);
  EXPECT_EQ(curve[0].train_loss, 1.0);
  EXPECT_FALSE(curve[1].test_loss);
}

TEST(CompareRead, APointUsesTheTimeOfItsWeightsIfTheRunRecordsIt) {
  const auto curve =
      read_curve(R"({"seconds":2.0,"step":13,"test_step":10,"test_correct":1,"test_total":2,)"
                 R"("test_seconds":1.5,"test_samples":600})",
                 64);
  ASSERT_EQ(curve.size(), 1U);
  EXPECT_EQ(curve[0].seconds, 1.5);
  EXPECT_EQ(curve[0].samples, 600);
}

TEST(CompareRead, DamagedLinesOfMetricsAreLeftOut) {
  const std::string text = std::string(kMetrics) +
                           "{\"seconds\":1.6,\"test_step\":30,\"test_corr\n"
                           "[]\n7\n\xff\n"
                           R"({"seconds":2,"test_step":30,"test_correct":1,"test_total":0})"
                           "\n"
                           R"({"seconds":"2","test_step":30,"test_correct":1,"test_total":2})";
  EXPECT_EQ(read_curve(text, 64).size(), 2U);
}

TEST(CompareRead, TheTargetIsReachedAtTheFirstEvaluationAboveIt) {
  CompareRun run;
  run.heads = {{"label", Metric::kAccuracy}};
  run.curve = read_curve(kMetrics, 64);
  find_target(Target{{}, 0.5}, run);
  EXPECT_EQ(run.seconds_to_target, 0.5);
  EXPECT_EQ(run.samples_to_target, 640);
  find_target(Target{{}, 0.9}, run);
  EXPECT_EQ(run.seconds_to_target, 1.5);
}

TEST(CompareRead, ReadsTheMetricOfTheFirstHead) {
  constexpr const char* kTokens =
      R"({"seconds":1,"test_step":10,"test_correct":0,"test_total":64,"test_accuracy":null,)"
      R"("heads":[{"name":"token","metric":"perplexity","value":9.5,"loss":2.25}]})"
      "\n"
      R"({"seconds":2,"test_step":20,"test_correct":0,"test_total":64,"test_accuracy":null,)"
      R"("heads":[{"name":"token","metric":"perplexity","value":6.5,"loss":1.87}]})"
      "\n"
      R"({"seconds":3,"test_step":30,"heads":[{"metric":"perplexity","value":null}]})"
      "\n"
      R"({"seconds":4,"test_step":40,"heads":[]})";
  const ScratchFolder folder;
  write_bytes(folder / "summary.json",
              R"({"samples_per_second": 1, "test_accuracy": null, "test_loss": 1.87,
                  "heads": [{"metric": "perplexity", "value": 6.5}, {"metric": "accuracy"}]})");
  write_bytes(folder / "metrics.jsonl", kTokens);
  CompareRun run;
  read_run(folder.path(), 64, run);
  EXPECT_EQ(run.metric, "perplexity");
  EXPECT_EQ(run.test_value, 6.5);
  ASSERT_EQ(run.curve.size(), 2U);
  EXPECT_EQ(run.curve[0].test_value, 9.5);
  find_target(Target{{}, 7.0}, run);
  EXPECT_EQ(run.seconds_to_target, 2.0) << "a lower perplexity is better";
  find_target(Target{{}, 6.0}, run);
  EXPECT_FALSE(run.seconds_to_target);
}

TEST(CompareRead, ATargetOfAnotherMeasureIsReadFromItsHead) {
  constexpr const char* kHeads =
      R"({"seconds":1,"test_step":10,"heads":[{"name":"label","metric":"accuracy","value":0.5,"loss":0.9},)"
      R"({"name":"f1","metric":"value","value":0.7,"loss":null},{"name":"wer","metric":"cost","value":0.4}]})"
      "\n"
      R"({"seconds":2,"test_step":20,"heads":[{"name":"label","metric":"accuracy","value":0.6,"loss":0.8},)"
      R"({"name":"f1","metric":"value","value":0.6},{"name":"wer","metric":"cost","value":0.2}]})"
      "\n"
      R"({"seconds":3,"test_step":30,"heads":[{"name":"label","metric":"accuracy","value":0.7,"loss":0.7},)"
      R"({"name":"f1","metric":"value","value":null},{"name":"wer","metric":"cost","value":0.3}]})"
      "\n";
  const ScratchFolder folder;
  write_bytes(folder / "summary.json",
              R"({"samples_per_second": 1, "heads": [{"name": "label", "metric": "accuracy"},
                  {"name": "f1", "metric": "value"}, {"name": "wer", "metric": "cost"}]})");
  write_bytes(folder / "metrics.jsonl", kHeads);
  const auto first = [&](const std::string& measure, double value) {
    CompareRun run;
    const Target target{*MeasureName::parse(measure), value};
    read_run(folder.path(), 64, run, target.name);
    find_target(target, run);
    return run.seconds_to_target;
  };
  EXPECT_EQ(first("f1/value", 0.7), 1.0);
  EXPECT_EQ(first("f1/value", 0.8), std::nullopt);
  EXPECT_EQ(first("wer/cost", 0.3), 2.0) << "less is better";
  EXPECT_EQ(first("loss", 0.85), 2.0);
  EXPECT_EQ(first("label/accuracy", 0.65), 3.0);
  EXPECT_EQ(first("metric", 0.6), 2.0);
  EXPECT_EQ(first("f1/cost", 9.0), std::nullopt) << "f1 is no cost";
  EXPECT_EQ(first("bleu/value", 0.0), std::nullopt);
}

TEST(CompareRead, AnUnreachedTargetHasNoTime) {
  CompareRun run;
  run.heads = {{"label", Metric::kAccuracy}};
  run.curve = read_curve(kMetrics, 64);
  run.seconds_to_target = 1.0;
  find_target(Target{{}, 0.95}, run);
  EXPECT_FALSE(run.seconds_to_target);
  EXPECT_FALSE(run.samples_to_target);
  find_target(std::nullopt, run);
  EXPECT_FALSE(run.seconds_to_target);
}

TEST(CompareRead, TheLastErrorOfTheLogIsTheReasonOfAFailure) {
  EXPECT_EQ(failure_line("server 0: listening\n"
                         "worker 1 | worker: error: [train] the loss is nan\n"
                         "[run] worker 1 (pid 7) ended with exit code 7 (not finite)\n",
                         7),
            "[train] the loss is nan (exit code 7)");
  EXPECT_EQ(
      failure_line("worker 1 | worker: error: [device] cuda:7 cannot be used\n"
                   "[run] worker 0 (pid 7) ended with exit code 9 (resource); stopping the others\n"
                   "server 0: error: [job] ended by SIGTERM (server 0 (vm, pid 5))\n",
                   9),
      "[device] cuda:7 cannot be used (exit code 9)");
  EXPECT_EQ(failure_line("[job] lr = -1: must be > 0\n\n", 2),
            "[job] lr = -1: must be > 0 (exit code 2)");
  EXPECT_EQ(
      failure_line("[run] worker 0 (pid 7) was killed by signal 9 (SIGKILL); stopping the others\n"
                   "server 0: error: [job] ended by SIGTERM (server 0 (vm, pid 5))\n",
                   137),
      "[run] worker 0 (pid 7) was killed by signal 9 (SIGKILL) (exit code 137)");
  EXPECT_EQ(failure_line("worker 0 | Traceback (most recent call last):\n"
                         "worker 0 | RuntimeError: my own mistake\n"
                         "[run] worker 0 (pid 7) ended with exit code 1; stopping the others\n"
                         "server 0: error: [job] ended by SIGTERM (server 0 (vm, pid 5))\n",
                         1),
            "RuntimeError: my own mistake (exit code 1)");
  EXPECT_EQ(failure_line("worker 1 | hello\n"
                         "[run] worker 1 (pid 7) ended with exit code 0 before training began; a "
                         "worker must join; stopping the others\n",
                         1),
            "[run] worker 1 (pid 7) ended with exit code 0 before training began (exit code 1)");
  EXPECT_EQ(
      failure_line("worker 0 | worker 0: shared memory with server 0\n"
                   "[run] worker 0 (pid 7) ended with exit code 7 (not finite): [train] nan\n",
                   7),
      "[train] nan (exit code 7)");
  EXPECT_THAT(failure_line("", 137), HasSubstr("137"));
  EXPECT_THAT(failure_line("error: [x] \x1b[31m\x01 odd\n", 1), Not(HasSubstr("\x1b")));
}

TEST(CompareRead, OnlyTheEndOfALongLogIsRead) {
  const ScratchFolder folder;
  write_bytes(folder / "log.txt", "0123456789");
  EXPECT_EQ(read_tail(folder / "log.txt", 4), "6789");
  EXPECT_EQ(read_tail(folder / "log.txt", 100), "0123456789");
  EXPECT_EQ(read_tail(folder / "none", 100), "");
}

}  // namespace
}  // namespace pushpull
