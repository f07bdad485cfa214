#include "cli/report/report_charts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/report/html_text.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

constexpr size_t kColours = 8;    // defined in the page's style; further strategies repeat them,
                                  // dashed
constexpr int64_t kMaxBins = 16;  // per staleness histogram
constexpr size_t kMaxHistograms = 12;     // more charts would not be read
constexpr double kHistogramShare = 0.99;  // fraction of updates that get their own bins

struct SplitPart {
  const char* name;
  const char* style;
  double StepSplit::*value;
};
constexpr std::array<SplitPart, 4> kParts = {{{"compute", "p0", &StepSplit::compute},
                                              {"push", "p1", &StepSplit::push},
                                              {"wait", "p2", &StepSplit::wait},
                                              {"pull", "p3", &StepSplit::pull}}};

std::string range_note(const Spread& value, const std::string& unit) {
  std::string out = number(value.median) + unit;
  if (value.count > 1) out += " (" + number(value.min) + " to " + number(value.max) + ")";
  return out;
}

std::string whiskers_note(const LinkCells& link) {
  const bool several =
      std::ranges::any_of(link.cells, [](const Cell& cell) { return cell.good.size() > 1; });
  return several ? "median over seeds; whiskers from lowest to highest" : "one seed, no whiskers";
}

std::vector<BarGroup> bars_by_workers(const LinkCells& link, const auto& bar) {
  std::vector<BarGroup> groups;
  for (const int64_t workers : link.workers) {
    BarGroup group{.label = std::to_string(workers), .bars = {}};
    for (const Cell* cell : link.of(workers)) group.bars.push_back(bar(*cell));
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string throughput(const LinkCells& link) {
  double most = 0;
  for (const Cell& cell : link.cells) {
    if (cell.rate) most = std::max(most, cell.rate->max);
  }
  if (most <= 0) return "";
  BarChart chart{.about = "Samples per second by number of workers and strategy",
                 .y = linear_axis(0, most, "samples/s"),
                 .x_title = "workers",
                 .groups = {}};
  chart.groups = bars_by_workers(link, [](const Cell& cell) {
    Bar bar{strategy_style(cell.colour), cell.strategy + ": ", cell.rate, "×"};
    bar.label += cell.rate ? range_note(*cell.rate, " samples/s") : "failed";
    return bar;
  });
  return figure("Throughput: samples per second", whiskers_note(link) + "; × failed", svg(chart));
}

std::string time_to_target(const LinkCells& link, std::optional<double> target) {
  double most = 0;
  for (const Cell& cell : link.cells) {
    if (cell.seconds.median) most = std::max(most, cell.seconds.max.value_or(0));
  }
  if (!target || most <= 0) return "";
  BarChart chart{.about = "Seconds to the target by number of workers and strategy",
                 .y = linear_axis(0, most, "seconds"),
                 .x_title = "workers",
                 .groups = {}};
  chart.groups = bars_by_workers(link, [&](const Cell& cell) {
    const Reached& there = cell.seconds;
    Bar bar{strategy_style(cell.colour), cell.strategy + ": ", std::nullopt, "×"};
    if (there.median) {
      const bool all = there.reached == there.asked;
      bar.value = Spread{*there.median, *there.min, all ? *there.max : chart.y.max, there.asked};
    }
    bar.label += there.median ? number(*there.median) + " s" : "never";
    bar.label += ", " + std::to_string(there.reached) + " of " + plural(there.asked, "seed");
    return bar;
  });
  return figure("Time to " + link.metric.target_text(*target),
                "whisker to the top: a seed never got there; ×: half of them or more", svg(chart));
}

std::string scaling(const LinkCells& link) {
  if (link.workers.size() < 2 || link.workers.front() != 1) return "";
  const auto largest = static_cast<double>(link.workers.back());
  LineChart chart{.about = "Samples per second against one worker",
                  .x = {.min = 1, .max = largest, .ticks = {}, .title = "workers"},
                  .y = {},
                  .lines = {},
                  .rule = std::nullopt};
  chart.lines.push_back({.style = "ideal", .label = "ideal", .points = {}});
  for (const int64_t workers : link.workers) {
    const auto x = static_cast<double>(workers);
    chart.x.ticks.push_back({x, std::to_string(workers)});
    chart.lines[0].points.push_back({x, x, x, x});
  }
  std::vector<Line> lines;
  double most = largest;
  for (const Cell& alone : link.cells) {
    if (alone.workers != 1) continue;
    Line line{.style = strategy_style(alone.colour), .label = alone.strategy, .points = {}};
    line.marks = true;
    for (const int64_t workers : link.workers) {
      const Cell* cell = link.find(alone.strategy, workers);
      if (cell == nullptr || !cell->scaling) continue;
      line.points.push_back({static_cast<double>(workers), *cell->scaling, 0, 0});
      most = std::max(most, *cell->scaling);
    }
    if (line.points.size() > 1) chart.lines.push_back(std::move(line));
  }
  if (chart.lines.size() < 2) return "";
  chart.y = linear_axis(0, most, "times its own samples/s with one worker");
  return figure("Scaling against one worker", "median over seeds; dotted: ideal", svg(chart));
}

struct Bins {
  int64_t width = 1;
  std::vector<double> shares;  // in percent
  int64_t rest_from = -1;      // the last bin holds this staleness and above
};

Bins bins_of(const Cell& cell) {
  double updates = 0;
  for (const auto& [staleness, count] : cell.staleness) updates += static_cast<double>(count);
  double seen = 0;
  int64_t common = 0;  // covers nearly all updates, or all if there is room
  for (const auto& [staleness, count] : cell.staleness) {
    if (cell.staleness_max >= kMaxBins && seen >= kHistogramShare * updates) break;
    seen += static_cast<double>(count);
    common = staleness;
  }
  Bins out;
  out.width = common / kMaxBins + 1;
  const int64_t whole = common / out.width + 1;
  const bool rest = cell.staleness_max >= whole * out.width;
  if (rest) out.rest_from = whole * out.width;
  out.shares.resize(static_cast<size_t>(whole + (rest ? 1 : 0)));
  for (const auto& [staleness, count] : cell.staleness) {
    const int64_t bin = std::min(std::max<int64_t>(staleness, 0) / out.width, whole);
    out.shares[static_cast<size_t>(bin)] += 100 * static_cast<double>(count) / updates;
  }
  return out;
}

std::string histogram(const Cell& cell) {
  const Bins bins = bins_of(cell);
  const std::string title = cell.strategy + ", " + plural(cell.workers, "worker");
  BarChart chart{
      .about = "Staleness of updates, " + title,
      .y = linear_axis(0, *std::ranges::max_element(bins.shares), "share of updates", "%"),
      .x_title = "staleness (updates)",
      .groups = {}};
  for (size_t i = 0; i < bins.shares.size(); ++i) {
    const int64_t from = static_cast<int64_t>(i) * bins.width;
    std::string label = std::to_string(from);
    if (from == bins.rest_from) {
      label.insert(0, "≥");
    } else if (bins.width > 1) {
      label += "–";
      label += std::to_string(from + bins.width - 1);
    }
    std::string tooltip = label;
    tooltip += ": " + number(bins.shares[i]) + "% of updates";
    const Spread value{bins.shares[i], bins.shares[i], bins.shares[i], 1};
    chart.groups.push_back({label, {{strategy_style(cell.colour), tooltip, value, ""}}});
  }
  return figure(title,
                "mean " + number(cell.staleness_mean.value_or(0)) +
                    " (median over seeds), largest " + std::to_string(cell.staleness_max),
                svg(chart));
}

std::string split_table(const LinkCells& link) {
  std::string out =
      "<details><summary>The numbers</summary><div class=\"scroll\" tabindex=\"0\"><table><thead>"
      "<tr><th>strategy</th><th class=\"n\">workers</th>";
  for (const SplitPart& part : kParts)
    out += std::string("<th class=\"n\">") + part.name + ", ms</th>";
  out += "</tr></thead><tbody>";
  for (const Cell& cell : link.cells) {
    if (cell.good.empty()) continue;
    out += "<tr><th>" + strategy_chip(cell.strategy, cell.colour) + "</th><td class=\"n\">" +
           std::to_string(cell.workers) + "</td>";
    for (const SplitPart& part : kParts) {
      out += "<td class=\"n\">" + fixed(1e3 * (cell.split.*part.value), 3) + "</td>";
    }
    out += "</tr>";
  }
  return out + "</tbody></table></div></details>";
}

double total(const StepSplit& split) {
  return split.compute + split.push + split.wait + split.pull;
}

}  // namespace

std::string strategy_style(size_t colour) {
  const std::string style = "s" + std::to_string(colour % kColours);
  return colour < kColours ? style : style + " again";
}

std::string strategy_chip(const std::string& strategy, size_t colour) {
  return "<span class=\"chip " + strategy_style(colour) + "\">" + html(strategy) + "</span>";
}

std::string strategy_legend(const LinkCells& link) {
  std::map<size_t, std::string> seen;
  for (const Cell& cell : link.cells) seen[cell.colour] = cell.strategy;
  std::string out = "<p class=\"legend\">";
  for (const auto& [colour, strategy] : seen) out += strategy_chip(strategy, colour) + " ";
  return out + "</p>";
}

std::string figure(const std::string& title, const std::string& note, const std::string& chart) {
  return "<figure><figcaption><b>" + html(title) + "</b>" +
         (note.empty() ? "" : "<span>" + html(note) + "</span>") + "</figcaption>" + chart +
         "</figure>\n";
}

std::string speed_charts(const LinkCells& link, std::optional<double> target) {
  const std::string charts = throughput(link) + time_to_target(link, target) + scaling(link);
  if (charts.empty()) return "<p class=\"none\">No run has a speed to show.</p>";
  std::string out = strategy_legend(link) + "<div class=\"charts\">" + charts + "</div>";
  if (link.workers.front() != 1) {
    out += "<p class=\"none\">No run with one worker, so no scaling against it.</p>";
  }
  return out;
}

std::string split_charts(const LinkCells& link) {
  double most = 0;
  for (const Cell& cell : link.cells) most = std::max(most, total(cell.split));
  if (most <= 0) return "<p class=\"none\">No run has measured the parts of its steps.</p>";
  const bool small = most < 0.5;
  const double unit = small ? 1e-3 : 1;
  const std::string name = small ? " ms" : " s";
  std::string out = "<p class=\"legend\">";
  for (const SplitPart& part : kParts) {
    out += std::string("<span class=\"chip ") + part.style + "\">" + part.name + "</span> ";
  }
  out += "</p><div class=\"charts\">";
  for (const int64_t workers : link.workers) {
    const std::string title = plural(workers, "worker");
    StackChart chart{.about = "Parts of a step, " + title,
                     .x = linear_axis(0, most / unit, "time of a step (" + name.substr(1) + ")"),
                     .rows = {}};
    for (const Cell* cell : link.of(workers)) {
      if (total(cell->split) <= 0) continue;
      StackRow row{cell->strategy, number(total(cell->split) / unit) + name, {}};
      for (const SplitPart& part : kParts) {
        const double value = cell->split.*part.value / unit;
        row.parts.push_back(
            {part.style, std::string(part.name) + " " + number(value) + name, value});
      }
      chart.rows.push_back(std::move(row));
    }
    if (chart.rows.empty()) continue;
    out += figure(title, "a mean worker's mean step, median over seeds", svg(chart));
  }
  return out + "</div>" + split_table(link);
}

std::string staleness_charts(const LinkCells& link) {
  std::string charts;
  std::map<size_t, std::string> fresh;
  size_t count = 0;
  for (const Cell& cell : link.cells) {
    if (!cell.staleness.empty()) fresh[cell.colour] = cell.strategy;
  }
  for (const Cell& cell : link.cells) {
    if (cell.staleness_max <= 0) continue;
    fresh.erase(cell.colour);
    if (++count <= kMaxHistograms) charts += histogram(cell);
  }
  std::string out;
  if (!charts.empty()) out += "<div class=\"charts\">" + charts + "</div>";
  if (count > kMaxHistograms) {
    out += "<p class=\"none\">" +
           plural(static_cast<int64_t>(count - kMaxHistograms), "more chart") +
           " left out; the table of costs has them all.</p>";
  }
  if (!fresh.empty()) {
    out += "<p class=\"none\">Never stale, no update came between a gradient's pull and its own: ";
    for (const auto& [colour, strategy] : fresh) out += strategy_chip(strategy, colour) + " ";
    out += "</p>";
  }
  if (out.empty()) return "<p class=\"none\">No run has counted staleness.</p>";
  return out;
}

}  // namespace pushpull
