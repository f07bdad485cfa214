// One update of a slice by each optimizer, each beside its floor in turns: the plainest loop that
// reads and writes the same vectors. `of_floor` is the median time over that of the floor;
// bytes_per_second counts each vector once per time that it is read or written.
#include <benchmark/benchmark.h>

#include <vector>

#include "bench/floors/floats.h"
#include "bench/floors/samples.h"
#include "common/base/simd.h"
#include "common/update/optimizer.h"

namespace {

using pushpull::OptimizerKind;

constexpr int64_t kSliceBytes = 1 << 20;

using pushpull::floors::Floats;
using pushpull::floors::Samples;
using pushpull::floors::touched;

PUSHPULL_SIMD void axpy(float lr, size_t n, const float* g, float* w) {
  PUSHPULL_ELEMENTWISE
  for (size_t i = 0; i < n; ++i) w[i] -= lr * g[i];
}

PUSHPULL_SIMD void axpy_with_state(float lr, size_t n, const float* g, float* s, float* w) {
  PUSHPULL_ELEMENTWISE
  for (size_t i = 0; i < n; ++i) {
    s[i] += g[i];
    w[i] -= lr * s[i];
  }
}

PUSHPULL_SIMD void axpy_with_states(float lr, size_t n, const float* g, float* s, float* t,
                                    float* w) {
  PUSHPULL_ELEMENTWISE
  for (size_t i = 0; i < n; ++i) {
    s[i] += g[i];
    t[i] += s[i];
    w[i] -= lr * t[i];
  }
}

// Reads g, reads and writes w and each vector of state.
void floor_pass(size_t n, const float* g, const std::vector<float*>& state, float* w) {
  constexpr float kRate = 1e-9F;  // small: numbers stay what they are
  if (state.empty()) axpy(kRate, n, g, w);
  if (state.size() == 1) axpy_with_state(kRate, n, g, state[0], w);
  if (state.size() == 2) axpy_with_states(kRate, n, g, state[0], state[1], w);
}

// The vectors of one slice.
struct Vectors {
  Vectors(size_t bytes, size_t states)
      : elements(bytes / sizeof(float)), g(touched(bytes, 1e-3F)), w(touched(bytes, 0.0F)) {
    for (size_t i = 0; i < states; ++i) owned.push_back(touched(bytes, 0.0F));
    for (const Floats& vector : owned) state.push_back(vector.get());
  }
  size_t elements;
  Floats g;
  Floats w;
  std::vector<Floats> owned;
  std::vector<float*> state;
};

void update(benchmark::State& state, OptimizerKind kind) {
  const size_t states = pushpull::state_names(kind).size();
  const auto bytes = static_cast<size_t>(state.range(0));
  Vectors ours(bytes, states);
  Vectors plain(bytes, states);  // its own: numbers that grow or vanish would change the update
  const pushpull::OptimizerOptions options{.kind = kind, .weight_decay = 1e-4};
  pushpull::UpdateContext context{1e-3, 8.0, 0.5, 0};
  Samples times;
  Samples floor;
  while (state.KeepRunning()) {
    floor.time([&] {
      floor_pass(plain.elements, plain.g.get(), plain.state, plain.w.get());
      benchmark::ClobberMemory();
    });
    ++context.updates;
    times.time([&] {
      pushpull::update_range(options, context, ours.elements, ours.w.get(), ours.g.get(),
                             ours.state, ours.w.get());
      benchmark::ClobberMemory();
    });
    state.SetIterationTime(times.last());
  }
  times.report(state, static_cast<double>(bytes));
  state.counters["of_floor"] = floor.median() > 0.0 ? times.median() / floor.median() : 0.0;
  // w and each vector of state are read and written, g is read.
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(3 + 2 * states) *
                          state.range(0));
}

// A slice (in cache after the first update), and 64 MiB (from memory each time).
void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("bytes")->Arg(kSliceBytes)->Arg(64 << 20);
  bench->UseManualTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(update, sgd, OptimizerKind::kSgd)->Apply(sizes);
BENCHMARK_CAPTURE(update, momentum, OptimizerKind::kMomentum)->Apply(sizes);
BENCHMARK_CAPTURE(update, nesterov, OptimizerKind::kNesterov)->Apply(sizes);
BENCHMARK_CAPTURE(update, adam, OptimizerKind::kAdam)->Apply(sizes);
BENCHMARK_CAPTURE(update, adamw, OptimizerKind::kAdamW)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
