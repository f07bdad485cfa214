// What memory allows: copy, w -= lr * g, and the update of a whole sync step of two workers (read
// two gradients, momentum and weights once, write momentum and weights once), on one and two
// threads. GB_s counts the vector of weights once, whatever the pass moves.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "bench/floors/floats.h"
#include "bench/floors/samples.h"
#include "bench/floors/team.h"
#include "common/base/simd.h"

namespace pushpull::floors {
namespace {

PUSHPULL_SIMD void axpy(float lr, size_t n, const float* g, float* w) {
  PUSHPULL_ELEMENTWISE
  for (size_t i = 0; i < n; ++i) w[i] -= lr * g[i];
}

PUSHPULL_SIMD void momentum(float lr, size_t n, const float* a, const float* b, float* m,
                            float* w) {
  PUSHPULL_ELEMENTWISE
  for (size_t i = 0; i < n; ++i) {
    m[i] = 0.9F * m[i] + 0.5F * (a[i] + b[i]);
    w[i] -= lr * m[i];
  }
}

// pass(first, count) over elements of a vector of state.range(0) bytes, on state.range(1) threads.
template <typename Pass>
void measure(benchmark::State& state, const Pass& pass) {
  const auto n = static_cast<size_t>(state.range(0)) / sizeof(float);
  const auto threads = static_cast<size_t>(state.range(1));
  Team team(static_cast<int>(threads));
  Samples samples;
  const auto part = [&](int i) {
    const size_t first = n * static_cast<size_t>(i) / threads;
    pass(first, n * (static_cast<size_t>(i) + 1) / threads - first);
    benchmark::ClobberMemory();
  };
  team.run(part);  // the first pass warms caches
  while (state.KeepRunning()) samples.time([&] { team.run(part); });
  samples.report(state, static_cast<double>(state.range(0)));
}

void memory_copy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const Floats from = touched(bytes, 1.0F);
  const Floats to = touched(bytes, 0.0F);
  measure(state, [&](size_t first, size_t count) {
    std::memcpy(to.get() + first, from.get() + first, count * sizeof(float));
  });
}

void memory_axpy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const Floats g = touched(bytes, 1e-3F);
  const Floats w = touched(bytes, 1.0F);
  measure(state, [&](size_t first, size_t count) {
    axpy(1e-3F, count, g.get() + first, w.get() + first);
  });
}

void memory_momentum(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const Floats a = touched(bytes, 1e-3F);
  const Floats b = touched(bytes, 2e-3F);
  const Floats m = touched(bytes, 0.0F);
  const Floats w = touched(bytes, 1.0F);
  measure(state, [&](size_t first, size_t count) {
    momentum(1e-3F, count, a.get() + first, b.get() + first, m.get() + first, w.get() + first);
  });
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
