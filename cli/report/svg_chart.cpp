#include "cli/report/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "cli/report/html_text.h"

namespace pushpull {
namespace {

constexpr double kWidth = 360;
constexpr double kHeight = 232;
constexpr double kTop = 26;     // room for the title of the y axis
constexpr double kBottom = 42;  // room for tick labels and the title of the x axis
constexpr double kRight = 14;   // room for half of the last label

// Prints a coordinate to a tenth of a unit: finer is not visible, and curves are most of a report.
std::string at(double value) {
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), "%.1f", std::isfinite(value) ? value : 0.0);
  std::string out = text.data();
  if (out.ends_with(".0")) out.resize(out.size() - 2);
  return out == "-0" ? "0" : out;
}

std::string text_at(double x, double y, const std::string& style, const std::string& text) {
  return "<text x=\"" + at(x) + "\" y=\"" + at(y) + "\" class=\"" + style + "\">" + html(text) +
         "</text>";
}

std::string line_at(double x1, double y1, double x2, double y2, const std::string& style) {
  return "<path d=\"M" + at(x1) + " " + at(y1) + "L" + at(x2) + " " + at(y2) + "\" class=\"" +
         style + "\"/>";
}

std::string rect_at(double x, double y, double width, double height, const std::string& style,
                    const std::string& label) {
  return "<rect x=\"" + at(x) + "\" y=\"" + at(y) + "\" width=\"" + at(width) + "\" height=\"" +
         at(height) + "\" class=\"" + style + "\"><title>" + html(label) + "</title></rect>";
}

std::string open_svg(double height, const std::string& about) {
  return "<svg class=\"chart\" viewBox=\"0 0 360 " + at(height) + "\" role=\"img\" aria-label=\"" +
         html(about) + "\">";
}

// Returns the width of a text of size 12 in a wide font (DejaVu Sans); other fonts need less.
double width_of(const std::string& text) {
  double width = 0;
  for (const char c : text) {
    const bool continued = (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;  // UTF-8
    const bool narrow = std::string_view(" .,:;ijl|'").find(c) != std::string_view::npos;
    const bool wide = std::string_view("%mwMW@").find(c) != std::string_view::npos;
    if (!continued) width += narrow ? 4 : wide ? 11.5 : 7.7;
  }
  return width;
}

// Returns the position of a value on an axis, from 0 to 1.
double share(const Axis& axis, double value) {
  if (axis.log) return std::log(value / axis.min) / std::log(axis.max / axis.min);
  return (value - axis.min) / (axis.max - axis.min);
}

struct Plot {
  double left, top, width, height;
  double x(const Axis& axis, double value) const { return left + width * share(axis, value); }
  double y(const Axis& axis, double value) const { return top + height * (1 - share(axis, value)); }
};

Plot plot_for(const Axis& y) {
  double left = 12;
  for (const Tick& tick : y.ticks) left = std::max(left, width_of(tick.label) + 8);
  return {left, kTop, kWidth - kRight - left, kHeight - kTop - kBottom};
}

std::string y_axis(const Plot& plot, const Axis& axis) {
  std::string out = text_at(0, 12, "name", axis.title);
  for (const Tick& tick : axis.ticks) {
    const double y = plot.y(axis, tick.at);
    out += line_at(plot.left, y, plot.left + plot.width, y, "grid");
    out += text_at(plot.left - 6, y + 4, "end", tick.label);
  }
  return out;
}

// Draws labels below the plot; omits a label that would touch the previous one.
std::string x_labels(const Plot& plot, const std::vector<Tick>& places, const std::string& title) {
  const double base = plot.top + plot.height;
  std::string out = line_at(plot.left, base, plot.left + plot.width, base, "axis");
  double free_from = -kWidth;
  for (const Tick& place : places) {
    const double half = width_of(place.label) / 2;
    if (place.at - half < free_from) continue;
    out += text_at(place.at, base + 16, "mid", place.label);
    free_from = place.at + half + 4;
  }
  return out + text_at(plot.left + plot.width / 2, base + 35, "mid name", title);
}

std::string curve(const Plot& plot, const LineChart& chart, const Line& line) {
  std::string path;
  const auto x = [&](const LinePoint& p) { return at(plot.width * share(chart.x, p.x)); };
  const auto y = [&](double value) { return at(plot.height * (1 - share(chart.y, value))); };
  for (const LinePoint& p : line.points) {
    if (path.empty()) {
      path = "M" + x(p) + " " + y(p.y);
    } else if (line.steps) {
      path += "H" + x(p) + "V" + y(p.y);
    } else {
      path += "L" + x(p) + " " + y(p.y);
    }
  }
  std::string out;
  if (line.band && !line.points.empty()) {
    std::string edge = "M" + x(line.points.front()) + " " + y(line.points.front().max);
    for (const LinePoint& p : line.points) edge += "H" + x(p) + "V" + y(p.max);
    for (size_t i = line.points.size(); i-- > 0;) {
      edge += (i + 1 == line.points.size() ? "V" : "H" + x(line.points[i + 1]) + "V") +
              y(line.points[i].min);
    }
    edge += "H" + x(line.points.front()) + "Z";
    out += "<path class=\"band " + line.style + "\" d=\"" + edge + "\"/>";
  }
  out += "<path class=\"line " + line.style + "\" d=\"" + path + "\"><title>" + html(line.label) +
         "</title></path>";
  // A single evaluation would be a line without length: draw a dot.
  if (!line.marks && line.points.size() > 1) return out;
  for (const LinePoint& p : line.points) {
    out += "<circle class=\"dot " + line.style + "\" cx=\"" + x(p) + "\" cy=\"" + y(p.y) +
           "\" r=\"3.2\"><title>" + html(line.label) + ": " + number(p.y) + "</title></circle>";
  }
  return out;
}

std::string bar_at(const Plot& plot, const Axis& axis, const Bar& bar, double x, double width) {
  const double base = plot.top + plot.height;
  const double middle = x + width / 2;
  if (!bar.value) return text_at(middle, base - 4, "mid sign " + bar.style, bar.missing);
  const double top = plot.y(axis, bar.value->median);
  std::string out =
      rect_at(x, top, width, std::max(base - top, 0.5), "bar " + bar.style, bar.label);
  if (bar.value->count < 2) return out;
  const double low = plot.y(axis, bar.value->min);
  const double high = plot.y(axis, bar.value->max);
  const double cap = std::min(width * 0.25, 4.0);
  return out + "<path class=\"whisker\" d=\"M" + at(middle) + " " + at(low) + "V" + at(high) + "M" +
         at(middle - cap) + " " + at(high) + "h" + at(2 * cap) + "M" + at(middle - cap) + " " +
         at(low) + "h" + at(2 * cap) + "\"/>";
}

}  // namespace

std::vector<double> round_ticks(double min, double max, int count) {
  const double rough = (max - min) / std::max(count, 1);
  if (!std::isfinite(rough) || rough <= 0) return {min};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough * 0.999) step = factor * power;
  }
  std::vector<double> ticks;
  const double first = std::ceil(min / step - 1e-9);
  for (double i = first; i * step <= max + step * 1e-9 && ticks.size() < 50; ++i) {
    ticks.push_back(i == 0 ? 0.0 : i * step);
  }
  return ticks;
}

Axis linear_axis(double min, double max, std::string title, const std::string& suffix, int count) {
  if (!std::isfinite(min) || !std::isfinite(max) || max < min) min = 0, max = 1;
  if (max - min <= std::abs(max) * 1e-9) {
    max = min > 0 ? min * 1.05 : min + 1;
    min = min > 0 ? min * 0.95 : min;
  }
  Axis axis{.min = min, .max = max, .ticks = {}, .title = std::move(title)};
  const std::vector<double> inner = round_ticks(min, max, count);
  if (inner.size() > 1) {
    const double step = inner[1] - inner[0];
    axis.min = std::floor(min / step + 1e-9) * step;
    axis.max = std::ceil(max / step - 1e-9) * step;
  }
  for (const double at : round_ticks(axis.min, axis.max, count)) {
    axis.ticks.push_back({at, compact(at) + suffix});
  }
  return axis;
}

Axis log_axis(double min, double max, std::string title) {
  Axis axis{.min = min, .max = std::max(max, min * 1.5), .ticks = {}, .title = std::move(title)};
  axis.log = true;
  const bool many = axis.max / axis.min > 200;
  const int first = static_cast<int>(std::floor(std::log10(axis.min)));
  const int last = static_cast<int>(std::floor(std::log10(axis.max)));
  for (int exponent = first; exponent <= last; ++exponent) {
    const double power = std::pow(10.0, exponent);
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = factor * power;
      if (at < axis.min * 0.999 || at > axis.max * 1.001 || (many && factor != 1.0)) continue;
      axis.ticks.push_back({at, compact(at)});
    }
  }
  return axis;
}

std::string svg(const LineChart& chart) {
  const Plot plot = plot_for(chart.y);
  std::vector<Tick> places;
  for (const Tick& tick : chart.x.ticks) {
    places.push_back({plot.x(chart.x, tick.at), tick.label});
  }
  std::string out = open_svg(kHeight, chart.about) + y_axis(plot, chart.y);
  // A nested svg clips everything outside the axes.
  out += "<svg x=\"" + at(plot.left) + "\" y=\"" + at(plot.top) + "\" width=\"" +
         at(plot.width + 4) + "\" height=\"" + at(plot.height) + "\">";
  if (chart.rule) {
    const double y = plot.height * (1 - share(chart.y, *chart.rule));
    out += line_at(0, y, plot.width, y, "rule");
  }
  for (const Line& line : chart.lines) out += curve(plot, chart, line);
  out += "</svg>";
  return out + x_labels(plot, places, chart.x.title) + "</svg>";
}

std::string svg(const BarChart& chart) {
  const Plot plot = plot_for(chart.y);
  std::string out = open_svg(kHeight, chart.about) + y_axis(plot, chart.y);
  std::vector<Tick> places;
  const double pitch = plot.width / static_cast<double>(std::max<size_t>(chart.groups.size(), 1));
  for (size_t g = 0; g < chart.groups.size(); ++g) {
    const BarGroup& group = chart.groups[g];
    const double left = plot.left + pitch * static_cast<double>(g);
    places.push_back({left + pitch / 2, group.label});
    const auto bars = static_cast<double>(std::max<size_t>(group.bars.size(), 1));
    const double each = std::min(pitch * 0.86 / bars, 34.0);
    double x = left + (pitch - each * bars) / 2;
    for (const Bar& bar : group.bars) {
      out += bar_at(plot, chart.y, bar, x + each * 0.07, each * 0.86);
      x += each;
    }
  }
  return out + x_labels(plot, places, chart.x_title) + "</svg>";
}

std::string svg(const StackChart& chart) {
  constexpr double kRow = 36;
  const auto rows = static_cast<double>(chart.rows.size());
  const Plot plot{8, 4, kWidth - 8 - kRight, kRow * rows};
  std::string out = open_svg(plot.top + plot.height + kBottom, chart.about);
  std::vector<Tick> places;
  for (const Tick& tick : chart.x.ticks) {
    const double x = plot.x(chart.x, tick.at);
    places.push_back({x, tick.label});
    for (size_t i = 0; i < chart.rows.size(); ++i) {
      const double row = plot.top + kRow * static_cast<double>(i);
      out += line_at(x, row + 17, x, row + kRow, "grid");
    }
  }
  double top = plot.top;
  for (const StackRow& row : chart.rows) {
    out += text_at(plot.left, top + 12, "strong", row.label);
    out += text_at(plot.left + plot.width, top + 12, "end", row.value);
    double from = 0;
    for (const StackPart& part : row.parts) {
      const double x = plot.x(chart.x, from);
      from += part.value;
      const double width = plot.x(chart.x, from) - x;
      if (width < 0.05) continue;
      out += rect_at(x, top + 17, width, 13, "bar " + part.style, row.label + ", " + part.label);
    }
    top += kRow;
  }
  return out + x_labels(plot, places, chart.x.title) + "</svg>";
}

}  // namespace pushpull
