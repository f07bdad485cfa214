#include "common/job/stop_when.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "common/base/error.h"
#include "common/base/strict_number.h"
#include "common/base/text.h"
#include "common/metrics/metric.h"

namespace pushpull {

namespace {

constexpr int64_t kMaxPatience = 1'000'000;

constexpr std::array<std::string_view, 6> kMetrics = {
    "loss", "metric", "accuracy", "exact-match", "perplexity", "mean-squared-error"};

}  // namespace

const char* const kStopWhenWords =
    "none, or [HEAD/]METRIC:PATIENCE with METRIC loss, metric, accuracy, exact-match, perplexity "
    "or "
    "mean-squared-error and PATIENCE from 1 to 1000000, such as loss:3";

std::string StopWhen::measure() const {
  if (!on()) return "metric";
  return head.empty() ? metric : head + "/" + metric;
}

StopWhen StopWhen::parse(const std::string& text) {
  if (text.empty() || text == "none") return {};
  const Error wrong(ErrorCode::kUsage,
                    "[job] stop-when '" + printable(text) + "' must be " + kStopWhenWords);
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw wrong;
  StopWhen rule;
  rule.metric = text.substr(0, colon);
  if (const size_t slash = rule.metric.find('/'); slash != std::string::npos) {
    rule.head = rule.metric.substr(0, slash);
    rule.metric = rule.metric.substr(slash + 1);
    if (!is_head_name(rule.head)) throw wrong;
  }
  if (std::ranges::find(kMetrics, rule.metric) == kMetrics.end()) throw wrong;
  const std::optional<int64_t> patience = parse_int64(text.substr(colon + 1));
  if (!patience || *patience < 1 || *patience > kMaxPatience) throw wrong;
  rule.patience = *patience;
  return rule;
}

std::string StopWhen::to_string() const {
  return on() ? measure() + ":" + std::to_string(patience) : "none";
}

}  // namespace pushpull
