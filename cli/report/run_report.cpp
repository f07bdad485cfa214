#include "cli/report/run_report.h"

#include <algorithm>
#include <vector>

#include "cli/report/html_text.h"
#include "cli/report/report_charts.h"
#include "cli/report/report_data.h"
#include "cli/report/report_page.h"
#include "cli/report/report_tables.h"
#include "cli/result/metric_style.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

constexpr size_t kMostPoints = 160;      // of a chart; more cannot be seen
constexpr size_t kMaxCurvePoints = 120;  // evaluations of a curve
constexpr size_t kMaxRows = 300;         // of a table

constexpr double kLogFrom = 5.0;  // ratio of the largest value to the smallest

using PointValue = std::optional<double> (*)(const MetricsPoint&);

std::optional<double> seconds_of(const MetricsPoint& p) { return p.seconds; }
std::optional<double> samples_of(const MetricsPoint& p) { return static_cast<double>(p.samples); }
std::optional<double> loss_of(const MetricsPoint& p) { return p.loss; }
std::optional<double> rate_of(const MetricsPoint& p) { return p.samples_per_second; }

// Summarises neighbouring lines by their median, lowest and highest value.
std::vector<LinePoint> points_of(const RunData& data, PointValue x, PointValue y) {
  std::vector<LinePoint> out;
  const size_t each = data.points.size() / kMostPoints + 1;
  for (size_t i = 0; i < data.points.size(); i += each) {
    std::vector<double> values;
    double last_x = 0;
    for (size_t k = i; k < std::min(i + each, data.points.size()); ++k) {
      if (const auto value = y(data.points[k])) values.push_back(*value);
      last_x = x(data.points[k]).value_or(0);
    }
    if (const auto found = spread(std::move(values))) {
      out.push_back({last_x, found->median, found->min, found->max});
    }
  }
  return out;
}

std::string line_chart(const RunData& data, const std::string& title, PointValue x,
                       const std::string& x_title, PointValue y, const std::string& y_title) {
  Line line{.style = strategy_style(0), .label = title, .points = points_of(data, x, y)};
  if (line.points.empty()) return "";
  double most = line.points.front().max;
  double least = line.points.front().min;
  for (const LinePoint& point : line.points) {
    most = std::max(most, point.max);
    least = std::min(least, point.min);
  }
  // A loss falls by powers of ten.
  const bool log = y == loss_of && least > 0 && most / least > kLogFrom;
  line.band = data.points.size() > kMostPoints;
  line.marks = line.points.size() == 1;
  const std::string note =
      line.band ? "median of neighbouring lines, band from lowest to highest" : "";
  LineChart chart{.about = title,
                  .x = linear_axis(0, line.points.back().x, x_title),
                  .y = log ? log_axis(least, most, y_title + ", logarithmic")
                           : linear_axis(std::min(least, 0.0), std::max(most, 0.0), y_title),
                  .lines = {line},
                  .rule = std::nullopt};
  return figure(title, note, svg(chart));
}

std::string training_charts(const RunData& data) {
  const std::string time = "time since training began (s)";
  const std::string charts =
      line_chart(data, "Training loss over time", seconds_of, time, loss_of, "training loss") +
      line_chart(data, "Training loss over samples", samples_of, "samples trained on", loss_of,
                 "training loss") +
      line_chart(data, "Speed over time", seconds_of, time, rate_of, "samples/s");
  if (charts.empty()) return "<p class=\"none\">There are no metrics yet.</p>";
  return "<div class=\"charts\">" + charts + "</div>";
}

std::string state_of(const RunData& data) {
  if (!data.finished) return "not finished: it goes on, or ended without a summary";
  return data.stopped_by.empty() ? "finished" : "stopped by " + data.stopped_by;
}

std::string facts(const RunData& data) {
  const CompareRun& run = data.run;
  const auto or_none = [](std::optional<double> value) { return value ? number(*value) : ""; };
  std::string out =
      "<dl>" + report_fact("state", state_of(data)) + report_fact("strategy", run.strategy) +
      report_fact("processes",
                  plural(run.workers, "worker") + ", " + plural(run.servers, "server")) +
      report_fact("seed", std::to_string(run.seed));
  if (data.finished) {
    out += report_fact("steps", std::to_string(run.steps)) +
           report_fact("samples", std::to_string(run.samples)) +
           report_fact("time", duration(run.seconds)) +
           report_fact("speed", number(run.samples_per_second) + " samples/s") +
           report_fact("training loss", or_none(run.train_loss)) +
           report_fact("test loss", or_none(run.test_loss));
    if (run.test_value) {
      const MetricStyle metric = style_of(run.metric);
      out += report_fact(metric.name, metric.value_text(*run.test_value));
    }
    if (run.model_parameters > 0) {
      out += report_fact("model parameters", std::to_string(run.model_parameters));
    }
    out += report_fact("weights (SHA-256)", run.weights_sha256);
  } else if (!data.points.empty()) {
    out += report_fact("steps so far", std::to_string(data.points.back().step));
  }
  return out + report_fact("folder", data.folder) + "</dl>";
}

std::string cell(const std::optional<double>& value) {
  return "<td class=\"n\">" + (value ? number(*value) : "–") + "</td>";
}

std::string cell(int64_t value) { return "<td class=\"n\">" + std::to_string(value) + "</td>"; }

std::string name_cells(const MemberRow& member) {
  return "<tr><th>" + html(member.role) +
         (member.rank ? " " + std::to_string(*member.rank) : std::string()) + "</th><td>" +
         html(member.host) + "</td>" + cell(member.pid);
}

std::string rest_row(size_t rows, size_t columns) {
  if (rows <= kMaxRows) return "";
  return "<tr><td colspan=\"" + std::to_string(columns) + "\" class=\"none\">and " +
         std::to_string(rows - kMaxRows) + " more in members.json</td></tr>";
}

std::string members_table(const RunData& data) {
  if (data.members.empty()) return "<p class=\"none\">There is no members.json.</p>";
  std::string out = open_table("Processes") +
                    "<thead><tr><th>process</th><th>host</th><th class=\"n\">pid</th>"
                    "<th>device</th><th class=\"n\">step</th><th class=\"n\">samples</th>"
                    "<th class=\"n\">CPU<small>s</small></th>"
                    "<th class=\"n\">memory<small>MiB, peak</small></th></tr></thead><tbody>";
  for (size_t i = 0; i < std::min(data.members.size(), kMaxRows); ++i) {
    const MemberRow& m = data.members[i];
    out += name_cells(m) + "<td>" + html(m.device) + "</td>" + cell(m.step) + cell(m.samples) +
           cell(m.cpu_seconds) + cell(m.peak_mib) + "</tr>";
  }
  return out + rest_row(data.members.size(), 8) + "</tbody>" + close_table();
}

std::string faults_part(const RunData& data) {
  if (data.left.empty() && data.faults.empty()) return "<p class=\"none\">None was recorded.</p>";
  std::string out;
  if (!data.faults.empty()) {
    out += "<dl>";
    for (const auto& [name, count] : data.faults) out += report_fact(name, std::to_string(count));
    out += "</dl>";
  }
  if (data.left.empty()) return out;
  out += open_table("Processes that left") +
         "<thead><tr><th>process</th><th>host</th><th class=\"n\">pid</th>"
         "<th class=\"n\">at<small>s</small></th><th class=\"n\">step</th><th>reason</th></tr>"
         "</thead><tbody>";
  for (size_t i = 0; i < std::min(data.left.size(), kMaxRows); ++i) {
    const MemberRow& m = data.left[i];
    out += name_cells(m) + cell(m.at_seconds) + cell(m.step) + "<td class=\"why\">" +
           html(m.reason) + "</td></tr>";
  }
  return out + rest_row(data.left.size(), 6) + "</tbody>" + close_table();
}

std::string header(const RunData& data, const MetricStyle& metric) {
  return "<header><h1>" + html(variant_name(data.run)) + "</h1><p>" + html(state_of(data)) +
         "</p><nav aria-label=\"Sections\"><a href=\"#results\">Results</a>"
         "<a href=\"#training\">Training</a><a href=\"#accuracy\">" +
         metric.title() +
         " and loss</a><a href=\"#steps\">Time of a step</a><a href=\"#staleness\">Staleness</a>"
         "<a href=\"#processes\">Processes</a><a href=\"#faults\">Faults</a>"
         "<a href=\"#job\">Job</a></nav></header>\n";
}

}  // namespace

std::string run_report_html(const RunData& data) {
  CompareResult result;
  result.strategies = {data.run.strategy};
  result.workers = {data.run.workers};
  result.metric = data.run.metric;
  result.runs = {data.run};
  const ReportData grouped = report_data(result);
  const LinkCells& link = grouped.links.front();
  std::string out = header(data, grouped.metric);
  out += report_section("results", "Results", "From the files in the run’s folder.", facts(data));
  out +=
      report_section("training", "Training", "The lines of metrics.jsonl.", training_charts(data));
  out += report_section("accuracy", grouped.metric.title() + " and loss",
                        "Each evaluation of the test split; a value holds until the next one.",
                        curve_charts(link, std::nullopt, kMaxCurvePoints));
  out += report_section(
      "steps", "Where a step’s time goes",
      "A worker’s mean step, by activity. Wait: for servers, other workers or the network.",
      split_charts(link));
  out += report_section("staleness", "Staleness",
                        "How many updates were made between the weights that a gradient was "
                        "computed on and its own update.",
                        staleness_charts(link));
  out += report_section("processes", "Processes",
                        "The members of the last step, with CPU time and memory as they last "
                        "reported them.",
                        members_table(data));
  out += report_section("faults", "Faults and departures",
                        "What was counted, and processes that left before the job was over.",
                        faults_part(data));
  out += report_section("job", "Job", "Every key, as the run used it.",
                        "<pre tabindex=\"0\">" + html_lines(data.job_ini) + "</pre>");
  return report_page("pushpull: " + variant_name(data.run), out);
}

}  // namespace pushpull
