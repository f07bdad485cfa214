// One update of a slice by each optimizer, beside the plain loops that bound it: memcpy, and
// w -= lr * g. bytes_per_second counts each vector once per time that it is read or written.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/optimizer.h"
#include "common/simd.h"

namespace {

using pushpull::OptimizerKind;

constexpr int64_t kSliceBytes = 1 << 20;

std::vector<float> floats(int64_t bytes, float value) {
  return std::vector<float>(static_cast<size_t>(bytes) / sizeof(float), value);
}

void memcpy_floor(benchmark::State& state) {
  const std::vector<float> from = floats(state.range(0), 1.0F);
  std::vector<float> to(from.size());
  while (state.KeepRunning()) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * state.range(0));
}

PUSHPULL_SIMD void axpy(float lr, size_t n, const float* g, float* w) {
  PUSHPULL_ELEMENTWISE
  for (size_t i = 0; i < n; ++i) w[i] -= lr * g[i];
}

void axpy_floor(benchmark::State& state) {
  const std::vector<float> g = floats(state.range(0), 1e-3F);
  std::vector<float> w(g.size());
  while (state.KeepRunning()) {
    axpy(1e-3F, w.size(), g.data(), w.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 3 * state.range(0));
}

void update(benchmark::State& state, OptimizerKind kind) {
  const std::vector<float> g = floats(state.range(0), 1e-3F);
  std::vector<float> w(g.size());
  const size_t slots = pushpull::state_names(kind).size();
  std::vector<std::vector<float>> slot(slots, std::vector<float>(g.size()));
  std::vector<float*> pointers;
  pointers.reserve(slots);
  for (std::vector<float>& s : slot) pointers.push_back(s.data());
  const pushpull::OptimizerOptions options{.kind = kind, .weight_decay = 1e-4};
  pushpull::UpdateContext context{1e-3, 8.0, 0.5, 0};
  while (state.KeepRunning()) {
    ++context.updates;
    pushpull::update_range(options, context, w.size(), w.data(), g.data(), pointers, w.data());
    benchmark::ClobberMemory();
  }
  // w and each slot are read and written, g is read.
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(3 + 2 * slots) *
                          state.range(0));
}

// A slice (in cache after the first update), and 64 MiB (from memory each time).
void sizes(benchmark::internal::Benchmark* bench) { bench->Arg(kSliceBytes)->Arg(64 << 20); }

BENCHMARK(memcpy_floor)->Apply(sizes);
BENCHMARK(axpy_floor)->Apply(sizes);
BENCHMARK_CAPTURE(update, sgd, OptimizerKind::kSgd)->Apply(sizes);
BENCHMARK_CAPTURE(update, momentum, OptimizerKind::kMomentum)->Apply(sizes);
BENCHMARK_CAPTURE(update, nesterov, OptimizerKind::kNesterov)->Apply(sizes);
BENCHMARK_CAPTURE(update, adam, OptimizerKind::kAdam)->Apply(sizes);
BENCHMARK_CAPTURE(update, adamw, OptimizerKind::kAdamW)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
