// Median and 99th percentile of times. Not the mean: one slow round (another program, a timer)
// would shift it. Plain functions; any thread.
#pragma once

#include <vector>

namespace pushpull {

struct Percentiles {
  double p50 = 0.0;
  double p99 = 0.0;
};

// Nearest rank: returns the smallest value that is >= this part of the values.
//   values: at least one. part: > 0 and <= 1.
double percentile(std::vector<double> values, double part);
Percentiles percentiles(const std::vector<double>& values);

// Returns the mean of each of the two figures.
Percentiles mean(const Percentiles& a, const Percentiles& b);

}  // namespace pushpull
