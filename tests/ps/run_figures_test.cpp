// The table of figures: each row shows in the outputs that it names, in their order, and in no other.

#include "ps/report/run_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "ps/report/metrics_sink.h"
#include "ps/report/report.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// A run with something to show in each row.
RunFigures full_figures() {
  RunFigures f;
  f.strategy = "sync";
  f.resumed_from_step = 3;
  f.recoveries = 1;
  f.workers_lost = 3;
  f.checkpoints_failed = 2;
  f.step = 7;
  f.end_step = 9;
  f.seconds = 1.5;
  f.loss = 0.25;
  f.step_done = 4;
  f.counts.samples = 40;
  f.samples_per_second = 20.0;
  f.counts.bad_gradients = 5;
  f.lost = {"server 1"};
  f.back_to_step = 5;
  f.staleness = {{0, 3}, {2, 1}};
  f.evaluation = Evaluation{6, {{{"label", Metric::kAccuracy, 1}, {1.0, 4, 3.0}}}};
  f.best = {"accuracy", 6, 6, 0.75, 0};
  f.weights_sha256 = "abc";
  f.logged = {{"gap", 0.5}};
  f.totals.stages.push_back({3, 1.5, 2.0, 2, 100, 200});
  return f;
}

std::string names(Figure::Output output, const RunFigures& figures) {
  std::string out;
  for (const Figure* row : shown_figures(figures, output)) {
    out += (out.empty() ? "" : " ") + std::string(row->name);
  }
  return out;
}

std::string status_names(const RunFigures& figures) { return names(Figure::kStatus, figures); }

TEST(RunFigures, EachOutputHasItsOrder) {
  const RunFigures f = full_figures();
  EXPECT_EQ(names(Figure::kMetrics, f),
            "seconds step epoch samples samples_per_second learning_rate loss logged "
            "staleness_mean staleness_max test_step test_seconds test_samples lost back_to_step "
            "heads");
  EXPECT_EQ(status_names(f),
            "version protocol run phase strategy servers workers host pid out up_seconds "
            "waiting_for failure step steps epoch samples samples_per_second learning_rate loss "
            "logged staleness_mean staleness_max seconds eta_seconds");
  EXPECT_EQ(
      names(Figure::kSummary, f),
      "strategy workers servers steps total_steps resumed_from_step samples samples_per_worker "
      "pushes_applied pushes_dropped pushes_dropped_per_worker seconds recoveries "
      "steps_repeated workers_lost stopped_early best_evaluation stopped_by checkpoints_failed "
      "bad_gradients samples_per_second train_loss heads logged model_parameters arena_bytes slots "
      "stages initial_weights_sha256 drawn_tensors unused_tensors data_digest numerics "
      "other_numerics data_order_sha256 weights_sha256 slices_per_server staleness bytes_pushed "
      "bytes_pulled rejected_frames rejected_by_reason refused_peers split cpu_seconds "
      "peak_rss_mib");
  EXPECT_EQ(names(Figure::kPrometheus, f),
            "up_seconds recoveries checkpoints_failed step steps epoch samples samples_per_second "
            "learning_rate loss seconds eta_seconds staleness tasks task_seconds bytes_pushed "
            "bytes_pulled rejected_frames refused_peers cpu_seconds peak_rss_mib test_step");
  EXPECT_EQ(names(Figure::kTensorBoard, f),
            "loss learning_rate samples_per_second epoch staleness_mean staleness_max");
  EXPECT_EQ(names(Figure::kProgress, f),
            "step epoch loss heads samples_per_second eta_seconds staleness_mean");
  EXPECT_EQ(
      names(Figure::kTable, f),
      "strategy steps best_evaluation samples pushes_applied seconds recoveries "
      "workers_lost checkpoints_failed bad_gradients train_loss heads logged stages staleness "
      "bytes_pushed "
      "split "
      "cpu_seconds peak_rss_mib weights_sha256");
}

TEST(RunFigures, AreShownOnceTheyExist) {
  RunFigures f;
  EXPECT_THAT(status_names(f), testing::EndsWith("waiting_for failure"));
  EXPECT_EQ(names(Figure::kPrometheus, f), "up_seconds recoveries checkpoints_failed");
  f.step = 0;
  EXPECT_THAT(status_names(f), testing::EndsWith("eta_seconds"));
  EXPECT_THAT(names(Figure::kMetrics, f), testing::EndsWith("staleness_max"));
}

// All texts of a run with these figures, by output.
class Outputs {
 public:
  explicit Outputs(const RunFigures& f) {
    testing::internal::CaptureStdout();
    {
      WatchOptions watch;
      watch.tensorboard_dir = folder_ / "board";
      Report report(folder_ / "out", ProgressStyle::kPlain, watch);
      const auto no_wait = [](const std::string& /*verb*/, const std::string& /*path*/) {};
      report.begin(report.open_files("", false, no_wait), 0);
      report.moment(f);
    }
    progress = testing::internal::GetCapturedStdout();
    metrics = nlohmann::json::parse(read_bytes(folder_ / "out/metrics.jsonl"));
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "board")) {
      events = read_bytes(entry.path());
    }
    summary = nlohmann::json::parse(summary_json(f));
    table = summary_table(f, "");
    const std::map<uint64_t, MemberInfo> shown;
    const Membership members(5.0);
    const MembersView view{0, 0, &shown, &members};
    status = nlohmann::json::parse(status_json(view, f));
    prometheus = prometheus_text(view, f);
  }

  nlohmann::json metrics, status, summary;
  std::string prometheus, events, progress, table;

 private:
  ScratchFolder folder_;
};

TEST(RunFigures, ARowShowsInTheOutputsThatItNames) {
  const RunFigures f = full_figures();
  const Outputs outputs(f);
  std::set<std::string> seen;
  for (const Figure& row : all_figures()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(seen.insert(row.name).second) << "a figure is one row";
    EXPECT_EQ(outputs.metrics.contains(row.name), (row.json & Figure::kMetrics) != 0);
    EXPECT_EQ(outputs.status.contains(row.name), (row.json & Figure::kStatus) != 0);
    EXPECT_EQ(outputs.summary.contains(row.name), (row.json & Figure::kSummary) != 0);
    if (const Figure::Metric& metric = row.shown.prometheus; metric.name != nullptr) {
      const std::string name = std::string("pushpull_") + metric.name;
      EXPECT_THAT(outputs.prometheus, HasSubstr("# HELP " + name + " " + metric.help + "\n# TYPE " +
                                                name + " " + metric.type + "\n" + name));
    }
    if (row.shown.tensor_board != nullptr) {
      EXPECT_THAT(outputs.events, HasSubstr(row.shown.tensor_board));
    }
    if (row.shown.progress != nullptr) {
      EXPECT_THAT(outputs.progress, HasSubstr(row.shown.progress(f)));
    }
    if (row.shown.table == nullptr) continue;
    EXPECT_FALSE(row.shown.table(f).empty());
    for (const auto& [name, value] : row.shown.table(f)) {
      EXPECT_THAT(outputs.table, testing::ContainsRegex("\n  " + name + " +"));
      EXPECT_THAT(outputs.table, HasSubstr(" " + value + "\n"));
    }
  }
}

}  // namespace
}  // namespace pushpull
