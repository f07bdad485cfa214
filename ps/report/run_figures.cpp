#include "ps/report/run_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/base/text.h"
#include "common/io/json.h"
#include "common/io/sha256.h"
#include "common/net/frames.h"

namespace pushpull {

namespace {

using F = const RunFigures&;
using Json = Figure::Value;
using Rows = Figure::Rows;
using enum Figure::Output;
using enum Figure::When;

constexpr size_t kMaxHostBytes = 255;
constexpr size_t kRunDigits = 12;
constexpr double kBytesOfMib = 1024.0 * 1024.0;

std::string fixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string fixed_or_none(std::optional<double> value) { return value ? fixed(*value, 4) : "-"; }

std::string list(const std::vector<int64_t>& values) {
  std::string out;
  for (const int64_t value : values) out += (out.empty() ? "" : " ") + std::to_string(value);
  return out;
}

double mib(int64_t kib) { return static_cast<double>(kib) / 1024.0; }

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Returns a digest that tells runs apart. It reveals nothing that a message of the run needs.
std::string run_digest(uint64_t run_id) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&run_id, 1)));
  return hash.hex().substr(0, kRunDigits);
}

int64_t epoch(F f) { return f.step.value_or(0) / f.steps_per_epoch; }

double staleness_mean(F f) {
  double sum = 0.0;
  double count = 0.0;
  for (const auto& [value, times] : f.staleness) {
    sum += static_cast<double>(value * times);
    count += static_cast<double>(times);
  }
  return count > 0 ? sum / count : 0.0;
}

int64_t staleness_max(F f) {
  return f.staleness.empty() ? 0 : std::max<int64_t>(0, f.staleness.rbegin()->first);
}

// Returns the time until `end_step` at this rate, or nothing while the rate is unknown.
std::optional<double> eta_seconds(F f) {
  if (f.counts.samples <= 0 || f.samples_per_second <= 0) return std::nullopt;
  const double samples_of_step = static_cast<double>(f.counts.samples) /
                                 std::max<double>(1.0, static_cast<double>(f.step_done));
  return static_cast<double>(f.end_step - f.step.value_or(0)) * samples_of_step /
         std::max(f.samples_per_second, 1e-9);
}

Json staleness_json(F f) {
  Json histogram = Json::object();
  for (const auto& [value, updates] : f.staleness) histogram[std::to_string(value)] = updates;
  return {{"max", staleness_max(f)},
          {"mean", staleness_mean(f)},
          {"histogram", histogram},
          {"clock_gap_max", f.totals.clock_gap_max}};
}

Json split_json(const RunTotals::Split& s) {
  return {{"compute", s.compute}, {"push", s.push}, {"wait", s.wait}, {"pull", s.pull}};
}

Json best_json(F f) {
  if (f.best.best_step == 0) return nullptr;
  return {{"measure", f.best.measure},
          {"step", f.best.best_step},
          {"value", f.best.best},
          {"evaluations_since", f.best.since_best}};
}

std::vector<HeadResult> heads(F f) {
  return f.evaluation ? f.evaluation->heads : std::vector<HeadResult>();
}

Json heads_json(F f) {
  Json out;
  add_heads(out, heads(f));
  return out;
}

std::string head_progress(F f) {
  const std::vector<HeadResult> all = heads(f);
  if (all.empty()) return "";
  return std::string(to_string(all.front().info.metric)) + " " + all.front().text();
}

Rows head_rows(F f) {
  const std::vector<HeadResult> all = heads(f);
  Rows rows = {{"test loss", fixed_or_none(all.empty() ? std::nullopt : all.front().loss())}};
  for (const HeadResult& head : all) {
    if (head.sums.counted == 0) continue;
    const bool first = &head == &all.front();
    const std::string metric = is_formula(head.info.metric) ? head.info.name
                                                            : (first ? "" : head.info.name + " ") +
                                                                  to_string(head.info.metric);
    rows.emplace_back(metric,
                      head.text() + (counts_targets(head.info.metric)
                                         ? " (" + std::to_string(correct_targets(head)) + " of " +
                                               std::to_string(head.sums.counted) + ")"
                                         : std::string()));
  }
  return rows;
}

Json stages_json(F f) {
  Json out = Json::array();
  for (const RunTotals::Stage& stage : f.totals.stages) {
    out.push_back({{"layers", stage.layers},
                   {"busy_seconds", stage.busy},
                   {"bubble", stage.bubble()},
                   {"slots_max", stage.slots_max},
                   {"bytes_in", stage.bytes_in},
                   {"bytes_out", stage.bytes_out}});
  }
  return out;
}

Rows logged_rows(F f) {
  Rows rows;
  for (const auto& [name, mean] : f.logged) rows.emplace_back(name, fixed(mean, 4));
  return rows;
}

Rows stage_rows(F f) {
  Rows rows;
  for (const RunTotals::Stage& stage : f.totals.stages) {
    rows.emplace_back("stage " + std::to_string(rows.size()),
                      std::to_string(stage.layers) + " layers, busy " + fixed(stage.busy, 2) +
                          " s, bubble " + fixed(100.0 * stage.bubble(), 1) + " %");
  }
  return rows;
}

// The order of the rows is that in each output, but for `kMoved`.
const Figure kFigures[] = {
    {"version", kStatus, [](F f) -> Json { return f.version; }, {.when = kAlways}},
    {"protocol", kStatus, [](F) -> Json { return kProtocolVersion; }, {.when = kAlways}},
    {"run", kStatus, [](F f) -> Json { return run_digest(f.run_id); }, {.when = kAlways}},
    {"phase",
     kStatus | kMembers,
     [](F f) -> Json { return phase_name(f.phase); },
     {.when = kAlways}},
    {"strategy",
     kStatus | kSummary,
     [](F f) -> Json { return f.strategy; },
     {.when = kAlways,
      .table = [](F f) -> Rows {
        return {{"strategy", f.strategy + ", " + plural(f.workers, "worker") + ", " +
                                 plural(f.servers, "server")}};
      }}},
    {"workers",
     kStatus | kSummary | kMembers,
     [](F f) -> Json { return f.workers; },
     {.when = kAlways}},
    {"servers", kStatus | kSummary, [](F f) -> Json { return f.servers; }, {.when = kAlways}},
    {"host",
     kStatus,
     [](F f) -> Json { return printable(f.host, kMaxHostBytes); },
     {.when = kAlways}},
    {"pid", kStatus, [](F f) -> Json { return f.pid; }, {.when = kAlways}},
    {"out",
     kStatus,
     [](F f) -> Json { return printable(f.out, kMaxPathBytes); },
     {.when = kAlways}},
    {"up_seconds",
     kStatus,
     [](F f) -> Json { return static_cast<double>(std::max<int64_t>(0, f.up_ms)) / 1000.0; },
     {.when = kAlways,
      .prometheus = {"up_seconds", "gauge", "Seconds since the coordinator began."}}},
    {"waiting_for", kStatus, [](F f) -> Json { return f.waiting_for; }, {.when = kAlways}},
    {"failure",
     kStatus | kMembers,
     [](F f) -> Json { return printable(f.failure, kMaxPathBytes); },
     {.when = kAlways}},
    {"exit_code",
     kMembers,
     [](F f) -> Json { return f.phase == wire::PHASE_FAILED ? Json(f.exit_code) : Json(); },
     {.when = kAlways}},
    // A step may go back, to the checkpoint that a later term starts from: so Prometheus has gauges.
    {"step",
     kMetrics | kStatus,
     [](F f) -> Json { return f.step.value_or(0); },
     {.prometheus = {"step", "gauge", "Complete steps."},
      .progress =
          [](F f) {
            return "step " + std::to_string(f.step.value_or(0)) + "/" + std::to_string(f.end_step);
          }}},
    {"steps",
     kStatus | kSummary,
     [](F f) -> Json { return f.end_step; },
     {.prometheus = {"end_step", "gauge", "The step at which this run ends."},
      .table = [](F f) -> Rows {
        return {{"steps",
                 std::to_string(f.end_step) +
                     (f.resumed_from_step ? ", resumed at " + std::to_string(*f.resumed_from_step)
                                          : std::string()) +
                     (f.stopped_early ? ", stopped early" : "")}};
      }}},
    {"total_steps", kSummary, [](F f) -> Json { return f.total_steps; }},
    {"resumed_from_step", kSummary, [](F f) -> Json { return or_null(f.resumed_from_step); }},
    {"epoch",
     kMetrics | kStatus,
     [](F f) -> Json { return epoch(f); },
     {.prometheus = {"epoch", "gauge", "Complete epochs."},
      .tensor_board = "train/epoch",
      .progress = [](F f) { return "epoch " + std::to_string(epoch(f)); }}},
    {"samples",
     kMetrics | kStatus | kSummary,
     [](F f) -> Json { return f.counts.samples; },
     {.prometheus = {"samples", "gauge", "Samples of this run in the weights."},
      .table = [](F f) -> Rows {
        return {{"samples", std::to_string(f.counts.samples) +
                                " (per worker: " + list(f.counts.samples_per_worker) + ")"}};
      }}},
    {"samples_per_worker", kSummary, [](F f) -> Json { return f.counts.samples_per_worker; }},
    {"pushes_applied",
     kSummary,
     [](F f) -> Json { return f.counts.pushes_applied; },
     {.table = [](F f) -> Rows {
       return {
           {"pushes", std::to_string(f.counts.pushes_applied) + " applied, " +
                          std::to_string(f.counts.pushes_dropped) + " dropped" +
                          (f.counts.pushes_dropped > 0
                               ? " (per worker: " + list(f.counts.pushes_dropped_per_worker) + ")"
                               : std::string())}};
     }}},
    {"pushes_dropped", kSummary, [](F f) -> Json { return f.counts.pushes_dropped; }},
    {"pushes_dropped_per_worker", kSummary,
     [](F f) -> Json { return f.counts.pushes_dropped_per_worker; }},
    {"seconds",
     kMetrics | kStatus | kSummary,
     [](F f) -> Json { return f.seconds; },
     {.prometheus = {"training_seconds", "gauge", "Seconds since training began."},
      .table = [](F f) -> Rows {
        return {
            {"time", fixed(f.seconds, 2) + " s, " + fixed(f.samples_per_second, 0) + " samples/s"}};
      }}},
    {"recoveries",
     kSummary,
     [](F f) -> Json { return f.recoveries; },
     {.when = kAlways,
      .prometheus = {"recoveries_total", "counter", "Servers that were lost and replaced."},
      .table = [](F f) -> Rows {
        if (f.recoveries == 0) return {};
        return {{"recoveries", plural(f.recoveries, "lost server") + ", " +
                                   plural(f.steps_repeated, "step") + " repeated"}};
      }}},
    {"steps_repeated", kSummary, [](F f) -> Json { return f.steps_repeated; }},
    {"workers_lost",
     kSummary,
     [](F f) -> Json { return f.workers_lost; },
     {.table = [](F f) -> Rows {
       if (f.workers_lost == 0) return {};
       return {{"workers lost", std::to_string(f.workers_lost)}};
     }}},
    {"stopped_early", kSummary, [](F f) -> Json { return f.stopped_early; }},
    {"best_evaluation",
     kSummary,
     [](F f) -> Json { return best_json(f); },
     {.table = [](F f) -> Rows {
       if (f.best.best_step == 0) return {};
       return {{"best", f.best.measure + " " + fixed(f.best.best, 4) + " at step " +
                            std::to_string(f.best.best_step)}};
     }}},
    {"stopped_by", kSummary, [](F f) -> Json { return or_null(f.stopped_by); }},
    {"checkpoints_failed",
     kSummary,
     [](F f) -> Json { return f.checkpoints_failed; },
     {.when = kAlways,
      .prometheus = {"checkpoints_failed_total", "counter",
                     "Checkpoints that could not be written."},
      .table = [](F f) -> Rows {
        if (f.checkpoints_failed == 0) return {};
        return {{"checkpoints", std::to_string(f.checkpoints_failed) + " failed"}};
      }}},
    {"bad_gradients",
     kSummary,
     [](F f) -> Json { return f.counts.bad_gradients; },
     {.table = [](F f) -> Rows {
       if (f.counts.bad_gradients == 0) return {};
       return {{"bad gradients", std::to_string(f.counts.bad_gradients)}};
     }}},
    {"samples_per_second",
     kMetrics | kStatus | kSummary,
     [](F f) -> Json { return f.samples_per_second; },
     {.prometheus = {"samples_per_second", "gauge", "Samples per second, smoothed."},
      .tensor_board = "train/samples_per_second",
      .progress = [](F f) { return fixed(f.samples_per_second, 0) + " samples/s"; }}},
    {"learning_rate",
     kMetrics | kStatus,
     [](F f) -> Json { return f.learning_rate; },
     {.prometheus = {"learning_rate", "gauge", "Learning rate of the next step."},
      .tensor_board = "train/learning_rate"}},
    {"loss",
     kMetrics | kStatus,
     [](F f) -> Json { return or_null(f.loss); },
     {.prometheus = {"loss", "gauge", "Training loss of the newest step."},
      .tensor_board = "train/loss",
      .progress = [](F f) { return "loss " + fixed_or_none(f.loss); }}},
    {"train_loss",
     kSummary,
     [](F f) -> Json { return or_null(f.train_loss); },
     {.table = [](F f) -> Rows {
       return {{"train loss", fixed_or_none(f.train_loss)}};
     }}},
    {"heads",
     kMetrics | kSummary,
     heads_json,
     {.when = kEvaluated, .spread = true, .progress = head_progress, .table = head_rows}},
    {"logged",
     kMetrics | kStatus | kSummary,
     [](F f) -> Json { return f.logged.empty() ? Json() : Json(f.logged); },
     {.when = kIfAny, .table = logged_rows}},
    {"model_parameters", kSummary, [](F f) -> Json { return f.model_parameters; }},
    {"arena_bytes", kSummary, [](F f) -> Json { return f.arena_bytes; }},
    {"slots", kSummary, [](F f) -> Json { return f.slots; }},
    {"stages", kSummary, stages_json, {.table = stage_rows}},
    {"initial_weights_sha256", kSummary, [](F f) -> Json { return f.initial_weights_sha256; }},
    {"drawn_tensors", kSummary, [](F f) -> Json { return f.drawn_tensors; }},
    {"unused_tensors", kSummary, [](F f) -> Json { return f.unused_tensors; }},
    {"data_digest", kSummary, [](F f) -> Json { return f.data_digest; }},
    {"numerics", kSummary, [](F f) -> Json { return f.numerics; }},
    {"other_numerics", kSummary, [](F f) -> Json { return f.other_numerics; }},
    // Identifies the samples that this run has drawn.
    {"data_order_sha256", kSummary, [](F f) -> Json { return f.counts.data_hash.hex(); }},
    {"weights_sha256",
     kSummary,
     [](F f) -> Json { return f.weights_sha256; },
     {.table = [](F f) -> Rows {
       return {{"weights", f.weights_sha256}};
     }}},
    {"slices_per_server", kSummary, [](F f) -> Json { return f.slices_per_server; }},
    {"staleness_mean",
     kMetrics | kStatus,
     [](F f) -> Json { return staleness_mean(f); },
     {.tensor_board = "staleness/mean",
      .progress =
          [](F f) {
            return "staleness " + fixed(staleness_mean(f), 1) + " (max " +
                   std::to_string(staleness_max(f)) + ")";
          }}},
    {"staleness_max",
     kMetrics | kStatus,
     [](F f) -> Json { return staleness_max(f); },
     {.tensor_board = "staleness/max"}},
    {"eta_seconds",
     kStatus,
     [](F f) -> Json { return or_null(eta_seconds(f)); },
     {.prometheus = {"eta_seconds", "gauge", "Seconds until the end at the present rate."},
      .progress = [](F f) { return "ETA " + clock_text(eta_seconds(f).value_or(NAN)); }}},
    {"staleness",
     kSummary,
     staleness_json,
     {.prometheus = {"staleness", "histogram",
                     "Staleness of updates: updates between the pull of the weights and the push."},
      .table = [](F f) -> Rows {
        return {{"staleness", "mean " + fixed(staleness_mean(f), 2) + ", max " +
                                  plural(staleness_max(f), "update")}};
      }}},
    {"tasks",
     0,
     [](F f) -> Json { return f.totals.tasks; },
     {.prometheus = {"tasks_total", "counter", "Training tasks that workers have computed."}}},
    {"task_seconds",
     0,
     [](F f) -> Json { return split_json(f.totals.split); },
     {.prometheus = {"task_seconds_total", "counter", "Seconds of these tasks by activity.",
                     "activity"}}},
    {"bytes_pushed",
     kSummary,
     [](F f) -> Json { return f.totals.bytes_pushed; },
     {.prometheus = {"pushed_bytes_total", "counter", "Payload bytes pushed to servers."},
      .table = [](F f) -> Rows {
        return {{"traffic",
                 fixed(static_cast<double>(f.totals.bytes_pushed) / 1e6, 1) + " MB pushed, " +
                     fixed(static_cast<double>(f.totals.bytes_pulled) / 1e6, 1) + " MB pulled"}};
      }}},
    {"bytes_pulled",
     kSummary,
     [](F f) -> Json { return f.totals.bytes_pulled; },
     {.prometheus = {"pulled_bytes_total", "counter", "Payload bytes pulled from servers."}}},
    {"rejected_frames",
     kSummary,
     [](F f) -> Json { return f.totals.rejected_frames; },
     {.prometheus = {"rejected_frames_total", "counter", "Messages that were rejected."}}},
    {"rejected_by_reason", kSummary, [](F f) -> Json { return f.totals.refusals; }},
    {"refused_peers",
     kSummary,
     [](F f) -> Json { return f.totals.refused_peers; },
     {.prometheus = {"refused_peers_total", "counter", "Connections that were refused."}}},
    // The seconds of a mean task.
    {"split",
     kSummary,
     [](F f) -> Json { return split_json(f.totals.mean_split()); },
     {.table = [](F f) -> Rows {
       const RunTotals::Split s = f.totals.mean_split();
       return {{"mean task", "compute " + fixed(1e3 * s.compute, 2) + ", push " +
                                 fixed(1e3 * s.push, 2) + ", wait " + fixed(1e3 * s.wait, 2) +
                                 ", pull " + fixed(1e3 * s.pull, 2) + " ms"}};
     }}},
    {"cpu_seconds",
     kSummary,
     [](F f) -> Json {
       return {{"server", f.totals.servers.cpu_seconds}, {"worker", f.totals.workers.cpu_seconds}};
     },
     {.prometheus = {"cpu_seconds_total", "counter", "User and system time of all processes.",
                     "role"},
      .table = [](F f) -> Rows {
        return {{"CPU time", fixed(f.totals.servers.cpu_seconds, 2) + " s servers, " +
                                 fixed(f.totals.workers.cpu_seconds, 2) + " s workers"}};
      }}},
    {"peak_rss_mib",
     kSummary,
     [](F f) -> Json {
       return {{"server", mib(f.totals.servers.peak_rss_kib)},
               {"worker", mib(f.totals.workers.peak_rss_kib)}};
     },
     {.prometheus = {"peak_memory_bytes", "gauge", "Largest resident memory of a process so far.",
                     "role", kBytesOfMib},
      .table = [](F f) -> Rows {
        return {{"memory", fixed(mib(f.totals.servers.peak_rss_kib), 0) + " MiB server, " +
                               fixed(mib(f.totals.workers.peak_rss_kib), 0) +
                               " MiB worker (peak)"}};
      }}},
    {"test_step",
     kMetrics,
     [](F f) -> Json { return f.evaluation ? f.evaluation->step : 0; },
     {.when = kEvaluated,
      .prometheus = {"test_step", "gauge", "The step of the newest evaluation."}}},
    {"test_seconds", kMetrics, [](F f) -> Json { return f.test_seconds; }, {.when = kEvaluated}},
    {"test_samples", kMetrics, [](F f) -> Json { return f.test_samples; }, {.when = kEvaluated}},
    {"lost",
     kMetrics,
     [](F f) -> Json { return f.lost.empty() ? Json() : Json(f.lost); },
     {.when = kIfAny}},
    {"back_to_step",
     kMetrics,
     [](F f) -> Json { return or_null(f.back_to_step); },
     {.when = kIfAny}},
};

// A figure that stands elsewhere in an output: before another one, or at the end. Readers of files
// know these orders; a new figure needs no line here.
struct Moved {
  Figure::Output in;
  std::string_view name;
  std::string_view before;  // "": the end
};
constexpr Moved kMoved[] = {
    {kMetrics, "seconds", "step"},
    {kMetrics, "heads", ""},
    {kStatus, "servers", "workers"},
    {kStatus, "seconds", "eta_seconds"},
    {kPrometheus, "recoveries", "step"},
    {kPrometheus, "checkpoints_failed", "step"},
    {kPrometheus, "seconds", "eta_seconds"},
    {kTensorBoard, "epoch", "staleness_mean"},
    {kTensorBoard, "samples_per_second", "epoch"},
    {kTensorBoard, "learning_rate", "samples_per_second"},
    {kProgress, "samples_per_second", "staleness_mean"},
    {kProgress, "eta_seconds", "staleness_mean"},
    {kProgress, "heads", "samples_per_second"},
    {kTable, "best_evaluation", "samples"},
    {kTable, "weights_sha256", ""},
};

std::vector<const Figure*> ordered(Figure::Output output) {
  std::vector<const Figure*> rows;
  for (const Figure& row : kFigures) {
    if (row.shown_in(output)) rows.push_back(&row);
  }
  const auto place = [&](std::string_view name) {
    return std::ranges::find_if(rows, [&](const Figure* row) { return row->name == name; });
  };
  for (const Moved& moved : kMoved) {
    if (moved.in != output) continue;
    const Figure* const row = *place(moved.name);
    rows.erase(place(moved.name));
    rows.insert(place(moved.before), row);
  }
  return rows;
}

bool due(const Figure& row, F f, Figure::Output output) {
  if (output == kSummary || output == kTable || row.shown.when == kAlways) return true;
  if (row.shown.when == kIfAny) return !row.value(f).is_null();
  return row.shown.when == kTraining ? f.step.has_value() : f.evaluation.has_value();
}

}  // namespace

bool Figure::shown_in(Output output) const {
  switch (output) {
    case kPrometheus:
      return shown.prometheus.name != nullptr;
    case kTensorBoard:
      return shown.tensor_board != nullptr;
    case kProgress:
      return shown.progress != nullptr;
    case kTable:
      return shown.table != nullptr;
    default:
      return (json & output) != 0;
  }
}

std::span<const Figure> all_figures() { return kFigures; }

std::vector<const Figure*> shown_figures(F figures, Figure::Output output) {
  std::vector<const Figure*> rows = ordered(output);
  std::erase_if(rows, [&](const Figure* row) { return !due(*row, figures, output); });
  return rows;
}

Json figures_json(F figures, Figure::Output output) {
  Json out;
  for (const Figure* row : shown_figures(figures, output)) {
    Json value = row->value(figures);
    if (row->shown.spread) {
      out.update(value);
    } else {
      out[row->name] = std::move(value);
    }
  }
  return out;
}

const char* phase_name(wire::Phase phase) {
  constexpr std::array<const char*, 5> kNames = {"gathering", "training", "finishing", "finished",
                                                 "failed"};
  return kNames.at(static_cast<size_t>(phase));
}

}  // namespace pushpull
