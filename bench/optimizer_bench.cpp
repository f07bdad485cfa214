// One update of a slice by each optimizer, alternating with its floor: the plainest loop that reads
// and writes the same vectors. `of_floor` is the median time divided by the floor's.
// bytes_per_second counts each vector once per read and once per write.
#include <benchmark/benchmark.h>

#include <vector>

#include "bench/samples.h"
#include "cli/bench/floats.h"
#include "cli/bench/update_floor.h"
#include "common/update/optimizer.h"

namespace {

using pushpull::OptimizerKind;

constexpr int64_t kSliceBytes = 1 << 20;

using pushpull::floors::Floats;
using pushpull::floors::Samples;
using pushpull::floors::touched;

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
  pushpull::UpdateFloor plain(state.range(0), 1, states);
  const pushpull::OptimizerOptions options{.kind = kind, .weight_decay = 1e-4};
  pushpull::UpdateContext context{1e-3, 8.0, 0.5, 0};
  Samples times;
  Samples floor;
  while (state.KeepRunning()) {
    floor.time([&] {
      plain.pass(0, plain.elements());
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
  // w and each vector of state are read and written; g is read.
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
