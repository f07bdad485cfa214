// Floors of memory: copy, w -= lr * g, and the update of a whole sync step of two workers (reads
// two gradients, momentum and weights once, writes momentum and weights once), on one and two
// threads. GB_s counts the vector of weights once, whatever the pass moves.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "bench/samples.h"
#include "cli/bench/floats.h"
#include "cli/bench/update_floor.h"
#include "common/base/thread_pool.h"

namespace pushpull::floors {
namespace {

// Measures pass(lo, hi) over the elements of a vector of state.range(0) bytes, on state.range(1)
// threads.
template <typename Pass>
void measure(benchmark::State& state, const Pass& pass) {
  const int64_t n = state.range(0) / static_cast<int64_t>(sizeof(float));
  const int64_t threads = state.range(1);
  ThreadPool pool(static_cast<int>(threads));
  Samples samples;
  const auto all = [&] {
    pool.run(threads, [&](int64_t part, int) {
      pass(n * part / threads, n * (part + 1) / threads);
      benchmark::ClobberMemory();
    });
  };
  all();  // warms the caches
  while (state.KeepRunning()) samples.time(all);
  samples.report(state, static_cast<double>(state.range(0)));
}

void memory_copy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const Floats from = touched(bytes, 1.0F);
  const Floats to = touched(bytes, 0.0F);
  measure(state, [&](int64_t lo, int64_t hi) {
    std::memcpy(to.get() + lo, from.get() + lo, static_cast<size_t>(hi - lo) * sizeof(float));
  });
}

void memory_axpy(benchmark::State& state) {
  UpdateFloor floor(state.range(0), 1, 0);
  measure(state, [&](int64_t lo, int64_t hi) { floor.pass(lo, hi); });
}

void memory_momentum(benchmark::State& state) {
  UpdateFloor floor(state.range(0), 2, 1);
  measure(state, [&](int64_t lo, int64_t hi) { floor.pass(lo, hi); });
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"bytes", "threads"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  bench->ArgsProduct(
      {{4 << 10, 64 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20, 400 << 20}, {1, 2}});
}

BENCHMARK(memory_copy)->Apply(sizes);
BENCHMARK(memory_axpy)->Apply(sizes);
BENCHMARK(memory_momentum)->Apply(sizes);

}  // namespace
}  // namespace pushpull::floors
