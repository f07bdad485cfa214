// Median and 99th percentile of times: one slow round (another program, a timer) would move a mean.
// Plain functions; any thread.
#pragma once

#include <vector>

namespace pushpull {

struct Percentiles {
  double p50 = 0.0;
  double p99 = 0.0;
};

// Nearest rank: the smallest value that at least this part of the values does not exceed.
//   values: at least one. part: > 0 and <= 1.
double percentile(std::vector<double> values, double part);
Percentiles percentiles(const std::vector<double>& values);

// The mean of each of the two figures.
Percentiles mean(const Percentiles& a, const Percentiles& b);

}  // namespace pushpull
