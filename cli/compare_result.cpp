#include "cli/compare_result.h"

#include <algorithm>

namespace pushpull {

std::optional<Spread> spread(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return Spread{median, values.front(), values.back(), static_cast<int64_t>(values.size())};
}

}  // namespace pushpull
