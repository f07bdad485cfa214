#include "cli/report/metric_style.h"

#include <array>
#include <cctype>
#include <cstdio>

#include "common/layout/metric.h"

namespace pushpull {

namespace {

std::string fixed_text(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string short_text(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

}  // namespace

std::string MetricStyle::target_text(double target) const {
  return short_text(target * scale) + unit + " test " + name;
}

std::string MetricStyle::value_text(double value) const {
  return fixed_text(value * scale, digits) + unit;
}

std::string MetricStyle::title() const {
  std::string text = name;
  if (!text.empty()) {
    text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  }
  return text;
}

MetricStyle style_of(const std::string& metric) {
  const std::optional<Metric> known = metric_of(metric);
  if (!known) return {};
  MetricStyle style;
  style.name = metric;
  style.higher_is_better = higher_is_better(*known);
  style.counts = counts_targets(*known);
  if (!style.counts) {
    style.scale = 1.0;
    style.unit = "";
    style.digits = 4;
  }
  return style;
}

}  // namespace pushpull
