#include "bench/samples.h"

#include "common/base/process.h"

namespace pushpull::floors {

double Samples::now() { return now_seconds(); }

double Samples::median() const { return seconds_.empty() ? 0.0 : percentile(seconds_, 0.5); }

void Samples::report(benchmark::State& state, double payload_bytes) {
  if (seconds_.empty()) return;
  const Percentiles seconds = percentiles(seconds_);
  floors::report(state, {seconds.p50 * 1e6, seconds.p99 * 1e6}, payload_bytes);
}

void report(benchmark::State& state, const Percentiles& us, double payload_bytes) {
  state.counters["p50_us"] = us.p50;
  state.counters["p99_us"] = us.p99;
  state.counters["GB_s"] = us.p50 > 0.0 ? payload_bytes / us.p50 / 1e3 : 0.0;
}

}  // namespace pushpull::floors
