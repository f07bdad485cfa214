#include "common/job/head_weights.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "common/base/error.h"
#include "common/base/strict_number.h"
#include "common/base/text.h"
#include "common/metrics/metric.h"

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

}  // namespace pushpull
