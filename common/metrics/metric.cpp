#include "common/metrics/metric.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

namespace pushpull {

namespace {

constexpr std::array<std::pair<Metric, const char*>, 4> kNames = {{
    {Metric::kAccuracy, "accuracy"},
    {Metric::kExactMatch, "exact match"},
    {Metric::kPerplexity, "perplexity"},
    {Metric::kMeanSquaredError, "mean squared error"},
}};

}  // namespace

const char* to_string(Metric metric) {
  for (const auto& [own, name] : kNames) {
    if (own == metric) return name;
  }
  return "";
}

std::optional<Metric> metric_of(const std::string& name) {
  for (const auto& [metric, own] : kNames) {
    if (name == own) return metric;
  }
  return std::nullopt;
}

bool counts_targets(Metric metric) {
  return metric == Metric::kAccuracy || metric == Metric::kExactMatch;
}

bool higher_is_better(Metric metric) { return counts_targets(metric); }

bool is_head_name(const std::string& name) {
  constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";
  constexpr size_t kMaxBytes = 64;
  return !name.empty() && name.size() <= kMaxBytes &&
         name.find_first_not_of(kLetters) == std::string::npos;
}

void HeadSums::add(const HeadSums& other) {
  loss += other.loss;
  counted += other.counted;
  metric += other.metric;
}

std::optional<double> HeadResult::loss() const {
  if (sums.counted == 0) return std::nullopt;
  return sums.loss / static_cast<double>(sums.counted);
}

std::optional<double> HeadResult::value() const {
  if (sums.counted == 0) return std::nullopt;
  const double mean = sums.metric / static_cast<double>(sums.counted);
  return info.metric == Metric::kPerplexity ? std::exp(mean) : mean;
}

std::string HeadResult::text() const {
  const std::optional<double> own = value();
  if (!own) return "-";
  std::array<char, 64> text{};
  const bool share = counts_targets(info.metric);
  std::snprintf(text.data(), text.size(), share ? "%.2f %%" : "%.4f", share ? 100.0 * *own : *own);
  return text.data();
}

}  // namespace pushpull
