#include "common/layout/metric.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

constexpr size_t kMaxWeights = 64;  // heads of a model
constexpr double kMaxWeight = 1e6;

}  // namespace

HeadWeights HeadWeights::parse(const std::string& text) {
  HeadWeights out;
  if (text.empty()) return out;
  const auto fail = [&]() -> Error {
    return {ErrorCode::kUsage,
            "[job] head-weights '" + printable(text) + "' must be NAME:WEIGHT,..."};
  };
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = trim(std::string_view(text).substr(begin, end - begin));
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) throw fail();
    const std::string name(trim(part.substr(0, colon)));
    const std::optional<double> weight = parse_real(trim(part.substr(colon + 1)));
    const bool is_known =
        std::ranges::any_of(out.weights, [&](const auto& known) { return known.first == name; });
    if (!is_head_name(name) || is_known || !weight || !(*weight >= 0.0) || *weight > kMaxWeight ||
        out.weights.size() == kMaxWeights) {
      throw fail();
    }
    out.weights.emplace_back(name, *weight);
    begin = end + 1;
  }
  return out;
}

std::string HeadWeights::to_string() const {
  std::string out;
  for (const auto& [name, weight] : weights) {
    out += (out.empty() ? "" : ",") + name + ":" + print_real(weight);
  }
  return out;
}

namespace {

constexpr std::array<std::pair<Metric, const char*>, 6> kNames = {{
    {Metric::kAccuracy, "accuracy"},
    {Metric::kExactMatch, "exact match"},
    {Metric::kPerplexity, "perplexity"},
    {Metric::kMeanSquaredError, "mean squared error"},
    {Metric::kValue, "value"},
    {Metric::kCost, "cost"},
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

bool is_formula(Metric metric) { return metric == Metric::kValue || metric == Metric::kCost; }

bool higher_is_better(Metric metric) { return counts_targets(metric) || metric == Metric::kValue; }

bool is_head_name(const std::string& name) {
  constexpr const char* kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
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
  if (sums.counted == 0 || is_formula(info.metric)) return std::nullopt;
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

// ---- names of measures ----

namespace {

constexpr std::array<std::string_view, 8> kMeasures = {
    "loss",  "metric", "accuracy", "exact-match", "perplexity", "mean-squared-error",
    "value", "cost"};

std::string word_of(Metric metric) {
  std::string word = to_string(metric);
  std::ranges::replace(word, ' ', '-');
  return word;
}

}  // namespace

std::optional<MeasureName> MeasureName::parse(const std::string& text) {
  MeasureName name;
  name.metric = text;
  if (const size_t slash = text.find('/'); slash != std::string::npos) {
    name.head = text.substr(0, slash);
    name.metric = text.substr(slash + 1);
    if (!is_head_name(name.head)) return std::nullopt;
  }
  if (std::ranges::find(kMeasures, name.metric) == kMeasures.end()) return std::nullopt;
  return name;
}

std::string MeasureName::to_string() const { return head.empty() ? metric : head + "/" + metric; }

std::optional<Measure> find_measure(const MeasureName& name, const std::vector<HeadInfo>& heads) {
  const auto found =
      name.head.empty() ? heads.begin() : std::ranges::find(heads, name.head, &HeadInfo::name);
  if (found == heads.end()) return std::nullopt;
  const auto head = static_cast<size_t>(found - heads.begin());
  if (name.metric == "loss") return Measure{head, true, false};
  if (name.metric != "metric" && name.metric != word_of(found->metric)) return std::nullopt;
  return Measure{head, false, higher_is_better(found->metric)};
}

std::string measures_of(const std::vector<HeadInfo>& heads) {
  std::string known;
  for (const HeadInfo& one : heads) {
    known.append(known.empty() ? "" : ", ").append(one.name).append("/loss, ");
    known.append(one.name).append("/").append(word_of(one.metric));
  }
  return known;
}

}  // namespace pushpull
