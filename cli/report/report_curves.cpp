// The charts of accuracy and loss over time and over samples, one line per strategy.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/report/html_text.h"
#include "cli/report/report_charts.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

struct Unit {
  double seconds;
  std::string name;
};

Unit unit_for(double seconds) {
  if (seconds < 0.5) return {1e-3, "ms"};
  if (seconds < 600) return {1, "s"};
  if (seconds < 3 * 3600.0) return {60, "min"};
  return {3600, "h"};
}

// The contents of one row of panels.
struct Kind {
  std::string title;
  CurveValue x, y;
  std::string x_title, y_title;
  bool loss = false;   // else the metric
  bool falls = false;  // lower is better
};

struct Panel {
  int64_t workers = 1;
  int64_t seeds = 0;  // of the strategy with the most seeds
  std::vector<Line> lines;
};

std::vector<Panel> panels_of(const LinkCells& link, const Kind& kind, size_t points) {
  std::vector<Panel> panels;
  for (const int64_t workers : link.workers) {
    Panel panel{.workers = workers, .seeds = 0, .lines = {}};
    for (const Cell* cell : link.of(workers)) {
      Line line{.style = strategy_style(cell->colour),
                .label = cell->strategy,
                .points = band(cell->good, kind.x, kind.y, points),
                .steps = true,
                .band = cell->good.size() > 1,
                .marks = false};
      if (line.points.empty()) continue;
      panel.seeds = std::max(panel.seeds, static_cast<int64_t>(cell->good.size()));
      panel.lines.push_back(std::move(line));
    }
    if (!panel.lines.empty()) panels.push_back(std::move(panel));
  }
  return panels;
}

struct Range {
  double x_max = 0;
  double y_min = std::numeric_limits<double>::infinity();
  double y_max = -std::numeric_limits<double>::infinity();
  bool cut = false;  // some curves continue outside the panel
};

// All panels of a row share their axes, so that they can be compared. A curve starts steep and
// differs at its end, so the axis covers the values after the first third.
Range range_of(const std::vector<Panel>& panels, bool falls) {
  Range range;
  double lowest = range.y_min;
  double highest = range.y_max;
  for (const Panel& panel : panels) {
    for (const Line& line : panel.lines) {
      const double end = line.points.back().x;
      range.x_max = std::max(range.x_max, end);
      for (const LinePoint& point : line.points) {
        lowest = std::min(lowest, point.min);
        highest = std::max(highest, point.max);
        if (point.x < end / 3) continue;
        range.y_min = std::min(range.y_min, point.min);
        range.y_max = std::max(range.y_max, point.max);
      }
    }
  }
  if (falls) range.y_max = std::min(range.y_max * 2, highest);
  range.cut = falls ? highest > range.y_max : lowest < range.y_min;
  return range;
}

// target: as users read it.
Axis y_axis_of(const Kind& kind, const MetricStyle& metric, Range& range,
               std::optional<double> target) {
  if (target) {
    range.y_min = std::min(range.y_min, *target);
    range.y_max = std::max(range.y_max, *target);
  }
  if (kind.falls) {
    if (range.y_min > 0 && range.y_max / range.y_min > 5) {
      return log_axis(range.y_min * 0.95, range.y_max, kind.y_title + ", logarithmic");
    }
    return linear_axis(std::min(range.y_min, 0.0), range.y_max, kind.y_title);
  }
  return linear_axis(range.y_min, range.y_max, kind.y_title, metric.unit);
}

std::string row(const LinkCells& link, const Kind& kind, std::optional<double> target,
                size_t points) {
  const std::vector<Panel> panels = panels_of(link, kind, points);
  if (panels.empty()) return "";
  const bool alone = link.workers.size() == 1;  // then all kinds share one row
  if (kind.loss) target.reset();
  if (target) target = *target * link.metric.scale;
  Range range = range_of(panels, kind.falls);
  Axis x = linear_axis(0, range.x_max, kind.x_title);
  x.max = std::max(range.x_max, x.max * 1e-3);  // a curve ends at the panel's edge
  std::erase_if(x.ticks, [&](const Tick& tick) { return tick.at > x.max; });
  const Axis y = y_axis_of(kind, link.metric, range, target);
  const bool band = std::ranges::any_of(panels, [](const Panel& panel) { return panel.seeds > 1; });
  std::string note = band ? "median over seeds, band from lowest to highest" : "one seed, no band";
  if (target) note += "; dotted: target " + compact(*target) + link.metric.unit;
  if (range.cut && !kind.falls) note += "; the axis begins at " + y.ticks.front().label;
  if (range.cut && kind.falls) note += "; the first steps lie above";
  std::string out;
  for (const Panel& panel : panels) {
    const std::string workers = plural(panel.workers, "worker");
    LineChart chart{.about = kind.title + ", " + workers,
                    .x = x,
                    .y = y,
                    .lines = panel.lines,
                    .rule = std::nullopt};
    if (target) chart.rule = *target;
    out += alone ? figure(chart.about, note, svg(chart)) : figure(workers, "", svg(chart));
  }
  if (alone) return out;
  return "<h4>" + html(kind.title) + " <small>" + html(note) +
         "</small></h4><div class=\"charts\">" + out + "</div>";
}

bool any_test_loss(const LinkCells& link) {
  for (const Cell& cell : link.cells) {
    for (const CompareRun* run : cell.good) {
      if (std::ranges::any_of(run->curve,
                              [](const CurvePoint& p) { return p.test_loss.has_value(); })) {
        return true;
      }
    }
  }
  return false;
}

double longest_run(const LinkCells& link) {
  double seconds = 0;
  for (const Cell& cell : link.cells) {
    for (const CompareRun* run : cell.good) {
      if (!run->curve.empty()) seconds = std::max(seconds, run->curve.back().seconds);
    }
  }
  return seconds;
}

}  // namespace

std::string curve_charts(const LinkCells& link, std::optional<double> target, size_t points) {
  const Unit unit = unit_for(longest_run(link));
  const CurveValue time = [unit](const CurvePoint& p) { return p.seconds / unit.seconds; };
  const CurveValue samples = [](const CurvePoint& p) { return static_cast<double>(p.samples); };
  const MetricStyle& metric = link.metric;
  const CurveValue value = [scale = metric.scale](const CurvePoint& p) {
    return p.test_value * scale;
  };
  const bool falls = !metric.higher_is_better;
  const bool test = any_test_loss(link);
  const CurveValue loss = [test](const CurvePoint& p) { return test ? p.test_loss : p.train_loss; };
  const std::string loss_name = test ? "test loss" : "training loss";
  const std::string time_title = "time since training began (" + unit.name + ")";
  const std::string samples_title = "samples trained on";
  const std::string name = test ? "Test loss" : "Training loss";
  std::string out;
  for (const Kind& kind :
       {Kind{metric.title() + " over time", time, value, time_title, "test " + metric.name, false,
             falls},
        Kind{metric.title() + " over samples", samples, value, samples_title, "test " + metric.name,
             false, falls},
        Kind{name + " over time", time, loss, time_title, loss_name, true, true},
        Kind{name + " over samples", samples, loss, samples_title, loss_name, true, true}}) {
    out += row(link, kind, target, points);
  }
  if (out.empty()) return "<p class=\"none\">No run left a curve.</p>";
  if (link.workers.size() == 1) out = "<div class=\"charts\">" + out + "</div>";
  return strategy_legend(link) + out;
}

}  // namespace pushpull
