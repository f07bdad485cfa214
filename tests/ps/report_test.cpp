#include "ps/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using nlohmann::json;
using testing::HasSubstr;

RunFigures some_summary() {
  RunFigures s;
  s.strategy = "ssp:2";
  s.workers = 3;
  s.servers = 2;
  s.end_step = 40;
  s.counts.samples = 2560;
  s.counts.samples_per_worker = {1000, 1000, 560};
  s.counts.pushes_applied = 80;
  s.counts.pushes_dropped = 12;
  s.counts.pushes_dropped_per_worker = {0, 2, 10};
  s.seconds = 2.5;
  s.samples_per_second = 1024.0;
  s.train_loss = 0.25;
  s.model_parameters = 101'770;
  s.data_digest = "d1";
  s.numerics = "AVX2";
  s.arena_bytes = 65'536;
  s.slots = 2;
  s.evaluation = Evaluation{40,
                            {{{"label", Metric::kAccuracy, 1}, {0.5 * 359, 359, 341.0}},
                             {{"position", Metric::kMeanSquaredError, 1}, {8.0, 4, 8.0}}}};
  s.weights_sha256 = std::string(64, 'a');
  s.slices_per_server = {4, 3};
  s.staleness = {{0, 10}, {1, 20}, {3, 10}};
  s.initial_weights_sha256 = std::string(64, 'b');
  s.counts.data_hash = *HashSum::from_hex(std::string(64, 'c'));
  s.totals.clock_gap_max = 2;
  s.totals.bytes_pushed = 123456789;
  s.totals.bytes_pulled = 987654321;
  s.totals.rejected_frames = 7;
  s.totals.refusals = {{"push-share", 7}};
  s.totals.refused_peers = 3;
  s.totals.servers = {1.5, 51712};
  s.totals.workers = {2.25, 82176};
  s.totals.split = {4.0, 1.0, 2.0, 0.5};
  s.totals.tasks = 100;
  return s;
}

TEST(SummaryJson, HasEveryFieldThatLaterWorkReads) {
  const json j = json::parse(summary_json(some_summary()));
  EXPECT_EQ(j.at("strategy"), "ssp:2");
  EXPECT_EQ(j.at("workers"), 3);
  EXPECT_EQ(j.at("servers"), 2);
  EXPECT_EQ(j.at("steps"), 40);
  EXPECT_TRUE(j.at("resumed_from_step").is_null());
  EXPECT_EQ(j.at("samples"), 2560);
  EXPECT_EQ(j.at("samples_per_worker"), json({1000, 1000, 560}));
  EXPECT_EQ(j.at("pushes_applied"), 80);
  EXPECT_EQ(j.at("pushes_dropped"), 12);
  EXPECT_EQ(j.at("pushes_dropped_per_worker"), json({0, 2, 10}));
  EXPECT_EQ(j.at("seconds"), 2.5);
  EXPECT_EQ(j.at("samples_per_second"), 1024.0);
  EXPECT_EQ(j.at("train_loss"), 0.25);
  EXPECT_EQ(j.at("test_loss"), 0.5);
  EXPECT_EQ(j.at("test_correct"), 341);
  EXPECT_EQ(j.at("test_total"), 359);
  EXPECT_EQ(j.at("model_parameters"), 101'770);
  EXPECT_EQ(j.at("data_digest"), "d1");
  EXPECT_EQ(j.at("numerics"), "AVX2");
  EXPECT_EQ(j.at("arena_bytes"), 65'536);
  EXPECT_EQ(j.at("slots"), 2);
  ASSERT_EQ(j.at("heads").size(), 2U);
  EXPECT_EQ(j.at("heads").at(0).at("value"), j.at("test_accuracy"));
  EXPECT_EQ(
      j.at("heads").at(1),
      nlohmann::json::parse(R"({"name": "position", "metric": "mean squared error", "value": 2.0,
                                      "loss": 2.0, "counted": 4})"));
  EXPECT_EQ(j.at("weights_sha256"), std::string(64, 'a'));
  EXPECT_EQ(j.at("slices_per_server"), json({4, 3}));
  EXPECT_EQ(j.at("bytes_pushed"), 123456789);
  EXPECT_EQ(j.at("bytes_pulled"), 987654321);
  EXPECT_EQ(j.at("rejected_frames"), 7);
  EXPECT_EQ(j.at("rejected_by_reason"), json({{"push-share", 7}}));
  EXPECT_EQ(j.at("refused_peers"), 3);
  EXPECT_EQ(j.at("initial_weights_sha256"), std::string(64, 'b'));
  EXPECT_EQ(j.at("data_order_sha256"), std::string(64, 'c'));
  EXPECT_EQ(j.at("split"),
            json({{"compute", 0.04}, {"push", 0.01}, {"wait", 0.02}, {"pull", 0.005}}));
  EXPECT_EQ(j.at("cpu_seconds"), json({{"server", 1.5}, {"worker", 2.25}}));
  EXPECT_EQ(j.at("peak_rss_mib").at("server"), 50.5);
  EXPECT_EQ(j.at("peak_rss_mib").at("worker"), 80.25);
}

TEST(SummaryJson, StalenessIsCountedInUpdates) {
  const json staleness = json::parse(summary_json(some_summary())).at("staleness");
  EXPECT_EQ(staleness.at("max"), 3);
  EXPECT_EQ(staleness.at("mean"), 1.25);
  EXPECT_EQ(staleness.at("histogram"), json({{"0", 10}, {"1", 20}, {"3", 10}}));
  EXPECT_EQ(staleness.at("clock_gap_max"), 2);
  const json none = json::parse(summary_json(RunFigures())).at("staleness");
  EXPECT_EQ(none.at("max"), 0);
  EXPECT_EQ(none.at("mean"), 0.0);
  EXPECT_EQ(none.at("histogram"), json::object());
}

TEST(SummaryJson, NonFiniteAndUnknownValuesAreNull) {
  RunFigures s = some_summary();
  s.seconds = std::numeric_limits<double>::infinity();
  s.samples_per_second = std::nan("");
  s.train_loss = std::nan("");
  s.evaluation.reset();
  const json j = json::parse(summary_json(s));
  for (const char* key :
       {"seconds", "samples_per_second", "train_loss", "test_loss", "test_accuracy"}) {
    EXPECT_TRUE(j.at(key).is_null()) << key;
  }
}

TEST(SummaryJson, ResumedRunHasItsFirstStep) {
  RunFigures s = some_summary();
  s.resumed_from_step = 17;
  EXPECT_EQ(json::parse(summary_json(s)).at("resumed_from_step"), 17);
  s.resumed_from_step = 0;
  EXPECT_EQ(json::parse(summary_json(s)).at("resumed_from_step"), 0);
}

TEST(SummaryTable, ShowsTheMainFigures) {
  const std::string table = summary_table(some_summary(), "/tmp/out");
  for (const std::string& text :
       {std::string("ssp:2"), std::string("341 of 359"), std::string("94.99 %"),
        std::string("0.2500"), std::string("mean 1.25"), std::string(64, 'a'),
        std::string("compute 40.00, push 10.00, wait 20.00, pull 5.00 ms"),
        std::string("80 applied, 12 dropped (per worker: 0 2 10)"),
        std::string("1.50 s servers, 2.25 s workers"), std::string("  /tmp/out")}) {
    EXPECT_THAT(table, HasSubstr(text));
  }
}

TEST(SummaryTable, SaysWhereARunWasStopped) {
  RunFigures s = some_summary();
  s.total_steps = 1600;
  EXPECT_THAT(summary_table(s, ""), testing::StartsWith("finished\n"));
  s.stopped_by = "SIGINT";
  EXPECT_THAT(summary_table(s, ""), testing::StartsWith("stopped at 40 of 1600 steps\n"));
}

RunFigures moment_at(double seconds, int64_t step) {
  RunFigures m;
  m.seconds = seconds;
  m.step = step;
  m.end_step = 100;
  m.steps_per_epoch = 10;
  m.step_done = step;
  m.counts.samples = step * 64;
  m.samples_per_second = 640.0;
  m.learning_rate = 0.1;
  m.loss = 1.5;
  m.staleness = {{0, 3}, {2, 1}};
  return m;
}

void wait_for_nothing(const std::string& /*verb*/, const std::string& /*path*/) {}

void begin(Report& report, const std::string& job_ini) {
  report.begin(report.open_files(job_ini, false, wait_for_nothing), 0);
}

void summarise(Report& report) {
  report.write_summary(some_summary(), wait_for_nothing);
  report.show_summary(some_summary());
}

std::string printed(Report& report, const std::vector<RunFigures>& moments) {
  testing::internal::CaptureStdout();
  for (const RunFigures& m : moments) report.moment(m);
  report.end_line();
  return testing::internal::GetCapturedStdout();
}

TEST(Report, MetricsAreOneJsonLinePerMoment) {
  const ScratchFolder folder;
  RunFigures second = moment_at(1.0, 20);
  second.loss = std::nan("");
  second.evaluation = Evaluation{20, {{{"label", Metric::kAccuracy, 1}, {0.75 * 10, 10, 8.0}}}};
  second.test_seconds = 0.875;
  second.test_samples = 1280;
  {
    Report report(folder / "new/out", ProgressStyle::kPlain);
    begin(report, "");
    printed(report, {moment_at(0.5, 10), second});
  }
  const std::string text = read_bytes(folder / "new/out/metrics.jsonl");
  std::vector<json> lines;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    lines.push_back(json::parse(text.substr(at, text.find('\n', at) - at)));
  }
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].at("step"), 10);
  EXPECT_EQ(lines[0].at("epoch"), 1);
  EXPECT_EQ(lines[0].at("loss"), 1.5);
  EXPECT_EQ(lines[0].at("staleness_max"), 2);
  EXPECT_FALSE(lines[0].contains("test_loss"));
  EXPECT_TRUE(lines[1].at("loss").is_null());
  EXPECT_FALSE(lines[0].contains("test_seconds"));
  EXPECT_EQ(lines[1].at("seconds"), 1.0);
  EXPECT_EQ(lines[1].at("test_seconds"), 0.875);
  EXPECT_EQ(lines[1].at("test_samples"), 1280);
  EXPECT_EQ(lines[1].at("test_correct"), 8);
  EXPECT_EQ(lines[1].at("test_loss"), 0.75);
}

TEST(Report, FailedMetricsWriteLeavesTheReportRunning) {
  const ScratchFolder folder;
  std::filesystem::create_symlink("/dev/full", folder / "metrics.jsonl");
  testing::internal::CaptureStderr();
  {
    Report report(folder.path(), ProgressStyle::kPlain);
    begin(report, "");
    for (int i = 1; i <= 3; ++i) printed(report, {moment_at(0.1 * i, i)});
    summarise(report);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("metrics.jsonl: No space left on device; training goes on"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_TRUE(std::filesystem::exists(folder / "summary.json"));
}

TEST(Report, TerminalShowsOneLineThatIsRewritten) {
  const ScratchFolder folder;
  Report report(folder.path(), ProgressStyle::kTerminal);
  begin(report, "");
  const std::string text = printed(report, {moment_at(0.1, 1), moment_at(0.2, 2)});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << "one newline at the end";
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 2);
  EXPECT_THAT(text, HasSubstr("step 2/100"));
  EXPECT_THAT(text, HasSubstr("loss 1.5000"));
  EXPECT_THAT(text, HasSubstr("640 samples/s"));
  EXPECT_THAT(text, HasSubstr("staleness 0.5 (max 2)"));
  EXPECT_THAT(text, HasSubstr("ETA 0:10")) << "98 steps of 64 samples at 640 a second";
}

TEST(Report, TerminalKeepsTheLineOfAnEvaluation) {
  const ScratchFolder folder;
  Report report(folder.path(), ProgressStyle::kTerminal);
  begin(report, "");
  RunFigures tested = moment_at(2.0, 100);
  tested.evaluation = some_summary().evaluation;
  const std::string text = printed(report, {moment_at(1.0, 50), tested, moment_at(2.1, 100)});
  EXPECT_THAT(text, testing::EndsWith("\033[?7h\n"));
  EXPECT_THAT(text.substr(text.rfind('\r')), HasSubstr("accuracy 94.99 %"))
      << "no line takes its place at the end";
}

TEST(Report, FileGetsPlainLinesRarelyAndTheLastOne) {
  const ScratchFolder folder;
  Report report(folder.path(), ProgressStyle::kPlain);
  begin(report, "");
  std::vector<RunFigures> moments;
  for (int i = 0; i < 40; ++i) moments.push_back(moment_at(0.25 * i, i));
  moments.push_back(moment_at(10.0, 100));
  const std::string text = printed(report, moments);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
  EXPECT_THAT(text, HasSubstr("step 100/100"));
}

TEST(Report, FilesOfAnEarlierRunStayUntilTrainingBegins) {
  const ScratchFolder folder;
  write_bytes(folder / "summary.json", "{}");
  write_bytes(folder / "metrics.jsonl", "old\n");
  write_bytes(folder / "members.json", "old");
  {
    Report report(folder.path(), ProgressStyle::kPlain);
    report.members("new");
  }
  EXPECT_EQ(read_bytes(folder / "summary.json"), "{}");
  EXPECT_EQ(read_bytes(folder / "metrics.jsonl"), "old\n");
  EXPECT_EQ(read_bytes(folder / "members.json"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "job.ini"));
  {
    Report report(folder.path(), ProgressStyle::kPlain);
    report.members("new");
    begin(report, "");
  }
  EXPECT_EQ(read_bytes(folder / "members.json"), "new");
  EXPECT_FALSE(std::filesystem::exists(folder / "summary.json"));
  EXPECT_EQ(read_bytes(folder / "metrics.jsonl"), "");
}

TEST(Report, WritesSummaryAndJob) {
  const ScratchFolder folder;
  Report report(folder.path(), ProgressStyle::kPlain);
  begin(report, "model = mlp\n");
  EXPECT_EQ(read_bytes(folder / "job.ini"), "model = mlp\n");
  testing::internal::CaptureStdout();
  summarise(report);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("ssp:2"));
  EXPECT_EQ(read_bytes(folder / "summary.json"), summary_json(some_summary()));
  EXPECT_FALSE(std::filesystem::exists(folder / "summary.json.tmp"));
}

TEST(Report, EachFileIsNamedBeforeItIsWaitedFor) {
  const ScratchFolder folder;
  Report report(folder.path(), ProgressStyle::kPlain);
  std::string named;
  const auto wait = [&](const std::string& verb, const std::string& path) {
    named += verb + " " + path.substr(folder.path().size()) + "\n";
  };
  report.begin(report.open_files("", false, wait), 0);
  report.write_summary(some_summary(), wait);
  EXPECT_EQ(named,
            "remove /summary.json\nwrite /job.ini\nopen /metrics.jsonl\n"
            "write /metrics.jsonl\nwrite /summary.json\n");
}

TEST(Report, DestructorWaitsForTheNewestMembers) {
  const ScratchFolder folder;
  {
    Report report(folder.path(), ProgressStyle::kPlain);
    begin(report, "");
    for (int i = 0; i <= 50; ++i) report.members(std::to_string(i));
  }
  EXPECT_EQ(read_bytes(folder / "members.json"), "50");
}

TEST(Report, ErrorNamesAFolderThatCannotBeCreated) {
  const ScratchFolder folder;
  write_bytes(folder / "file", "");
  EXPECT_THAT(
      thrown(ErrorCode::kIo, [&] { const Report r(folder / "file/out", ProgressStyle::kPlain); }),
      HasSubstr(folder / "file/out"));
}

TEST(Report, ErrorNamesMetricsThatCannotBeOpened) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "metrics.jsonl");
  EXPECT_THAT(thrown(ErrorCode::kIo, [&] { const Report r(folder.path(), ProgressStyle::kPlain); }),
              HasSubstr("metrics.jsonl: Is a directory"));
}

}  // namespace
}  // namespace pushpull
