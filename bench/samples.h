// Times of single passes as counters of Google Benchmark: medians, and GB/s = 1e9 payload bytes per
// second. One thread.
#pragma once

#include <benchmark/benchmark.h>

#include <vector>

#include "cli/bench/percentiles.h"
#include "common/base/process.h"

namespace pushpull::floors {

class Samples {
 public:
  // Times one pass.
  template <typename Pass>
  void time(Pass&& pass);

  // Sets the counters p50_us, p99_us and GB_s.
  //   payload_bytes: of one pass.
  void report(benchmark::State& state, double payload_bytes);

  double last() const { return seconds_.back(); }  // seconds
  double median() const;                           // seconds; 0 without samples

 private:
  static double now();

  std::vector<double> seconds_;
};

// Sets the counters p50_us, p99_us and GB_s.
//   payload_bytes: of one pass.
inline void report(benchmark::State& state, const Percentiles& us, double payload_bytes) {
  state.counters["p50_us"] = us.p50;
  state.counters["p99_us"] = us.p99;
  state.counters["GB_s"] = us.p50 > 0.0 ? payload_bytes / us.p50 / 1e3 : 0.0;
}

template <typename Pass>
void Samples::time(Pass&& pass) {
  const double begin = now();
  pass();
  seconds_.push_back(now() - begin);
}

inline double Samples::now() { return now_seconds(); }

inline double Samples::median() const { return seconds_.empty() ? 0.0 : percentile(seconds_, 0.5); }

inline void Samples::report(benchmark::State& state, double payload_bytes) {
  if (seconds_.empty()) return;
  const Percentiles seconds = percentiles(seconds_);
  floors::report(state, {seconds.p50 * 1e6, seconds.p99 * 1e6}, payload_bytes);
}

}  // namespace pushpull::floors
