#include "bench/floors/samples.h"

#include <algorithm>

#include "common/base/process.h"

namespace pushpull::floors {

double Samples::now() { return now_seconds(); }

double Samples::quantile(double q) const {
  if (seconds_.empty()) return 0.0;
  std::vector<double> sorted = seconds_;
  const auto index = static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5);
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(index),
                   sorted.end());
  return sorted[index];
}

double Samples::median() const { return quantile(0.5); }

void Samples::report(benchmark::State& state, double payload_bytes) {
  state.counters["p50_us"] = 1e6 * median();
  state.counters["p99_us"] = 1e6 * quantile(0.99);
  state.counters["GB_s"] = median() > 0.0 ? payload_bytes / median() / 1e9 : 0.0;
}

}  // namespace pushpull::floors
