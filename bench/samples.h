// Times of single passes as counters of Google Benchmark: medians, and GB/s = 1e9 payload bytes per
// second. One thread.
#pragma once

#include <benchmark/benchmark.h>

#include <vector>

#include "cli/bench/percentiles.h"

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
void report(benchmark::State& state, const Percentiles& us, double payload_bytes);

template <typename Pass>
void Samples::time(Pass&& pass) {
  const double begin = now();
  pass();
  seconds_.push_back(now() - begin);
}

}  // namespace pushpull::floors
