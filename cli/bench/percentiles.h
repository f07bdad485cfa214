// Median and 99th percentile of times. Not the mean: one slow round (another program, a timer)
// would shift it. Plain functions; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/error.h"

namespace pushpull {

struct Percentiles {
  double p50 = 0.0;
  double p99 = 0.0;
};

// Nearest rank: returns the smallest value that is >= this part of the values.
//   values: at least one. part: > 0 and <= 1.
inline double percentile(std::vector<double> values, double part) {
  PP_ASSERT(!values.empty() && part > 0.0 && part <= 1.0);
  const auto rank = static_cast<size_t>(std::ceil(part * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(1, rank) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}
inline Percentiles percentiles(const std::vector<double>& values) {
  return {percentile(values, 0.5), percentile(values, 0.99)};
}

// Returns the mean of each of the two figures.
inline Percentiles mean(const Percentiles& a, const Percentiles& b) {
  return {(a.p50 + b.p50) / 2, (a.p99 + b.p99) / 2};
}

}  // namespace pushpull
