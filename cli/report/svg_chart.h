// Charts as SVG text: lines with bands, grouped bars with whiskers, stacked bars. They are 360
// units wide, so that they fit a screen of 400 pixels with their text at its own size, and take
// their colours from the page's style by class. Titles and legends are the page's. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/result/compare_result.h"

namespace pushpull {

struct Tick {
  double at = 0.0;
  std::string label;
};

struct Axis {
  double min = 0.0;
  double max = 1.0;
  std::vector<Tick> ticks;
  std::string title;  // with its unit
  bool log = false;
};

// Round numbers (1, 2 or 5 times a power of ten apart) from `min` to `max`, about `count` of them.
std::vector<double> round_ticks(double min, double max, int count);
// An axis whose ends are round as well; `suffix` goes behind each label. A range that is empty or
// not finite becomes one that can be drawn.
Axis linear_axis(double min, double max, std::string title, const std::string& suffix = "",
                 int count = 5);
// Needs 0 < min; ticks at 1, 2 and 5 times powers of ten.
Axis log_axis(double min, double max, std::string title);

struct LinePoint {
  double x = 0.0;
  double y = 0.0;
  double min = 0.0;  // of the band
  double max = 0.0;
};

struct Line {
  std::string style;  // class names
  std::string label;  // shown where the mouse rests
  std::vector<LinePoint> points;
  bool steps = false;  // a value holds until the next one, as what was measured last
  bool band = false;
  bool marks = false;  // a dot at each point
};

struct LineChart {
  std::string about;  // for people who do not see it
  Axis x, y;
  std::vector<Line> lines;
  std::optional<double> rule;  // a dotted line across, at this y
};
std::string svg(const LineChart& chart);

struct Bar {
  std::string style;
  std::string label;
  std::optional<Spread> value;  // empty: nothing to show, marked by `missing`
  std::string missing;          // one short sign
};

struct BarGroup {
  std::string label;
  std::vector<Bar> bars;
};

struct BarChart {
  std::string about;
  Axis y;
  std::string x_title;
  std::vector<BarGroup> groups;
};
std::string svg(const BarChart& chart);

struct StackPart {
  std::string style;
  std::string label;
  double value = 0.0;
};

struct StackRow {
  std::string label;
  std::string value;  // of all parts
  std::vector<StackPart> parts;
};

struct StackChart {
  std::string about;
  Axis x;
  std::vector<StackRow> rows;
};
std::string svg(const StackChart& chart);

}  // namespace pushpull
