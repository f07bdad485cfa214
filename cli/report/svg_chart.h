// Charts as SVG text: lines with bands, grouped bars with whiskers, stacked bars. They are 360
// units wide, which fits a screen of 400 pixels without scaling the text, and take their colours
// from the page's style sheet by class. The page provides titles and legends. Any thread.
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

// Returns about `count` round numbers from `min` to `max`, spaced 1, 2 or 5 times a power of ten.
std::vector<double> round_ticks(double min, double max, int count);
// Returns an axis with round ends; `suffix` is appended to each label. An empty or non-finite range
// is replaced by one that can be drawn.
Axis linear_axis(double min, double max, std::string title, const std::string& suffix = "",
                 int count = 5);
// Requires 0 < min. Ticks are at 1, 2 and 5 times powers of ten.
Axis log_axis(double min, double max, std::string title);

struct LinePoint {
  double x = 0.0;
  double y = 0.0;
  double min = 0.0;  // lower edge of the band
  double max = 0.0;
};

struct Line {
  std::string style;  // class names
  std::string label;  // tooltip
  std::vector<LinePoint> points;
  bool steps = false;  // a value holds until the next one
  bool band = false;
  bool marks = false;  // draw a dot at each point
};

struct LineChart {
  std::string about;  // description for screen readers
  Axis x, y;
  std::vector<Line> lines;
  std::optional<double> rule;  // y of a dotted horizontal line
};
std::string svg(const LineChart& chart);

struct Bar {
  std::string style;
  std::string label;
  std::optional<Spread> value;  // empty if there is no value; then `missing` is drawn
  std::string missing;          // a short sign
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
  std::string value;  // total of the parts
  std::vector<StackPart> parts;
};

struct StackChart {
  std::string about;
  Axis x;
  std::vector<StackRow> rows;
};
std::string svg(const StackChart& chart);

}  // namespace pushpull
