// The update of a whole step at a server, two parts for each slice of 1 MiB, compared with the
// memory floor of the same run: a plain loop that reads two gradients and updates momentum and
// weights in place. Counters: floor_ms, and ratio, the update's time divided by the floor's. The
// floor is that of momentum whatever the optimizer: sgd moves fewer bytes, adam more.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "cli/bench/floats.h"
#include "cli/bench/update_floor.h"
#include "common/base/thread_pool.h"
#include "ps/engine/shard.h"

namespace {

using pushpull::OptimizerKind;
using pushpull::PartialSum;
using pushpull::floors::Floats;
using pushpull::floors::touched;

constexpr int64_t kSliceBytes = 1 << 20;

struct Times {
  std::vector<double> wall;
  std::vector<double> cpu;

  static double now(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  template <class Work>
  void add(const Work& work) {
    const double wall_start = now(CLOCK_MONOTONIC);
    const double cpu_start = now(CLOCK_PROCESS_CPUTIME_ID);
    work();
    cpu.push_back(now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start);
    wall.push_back(now(CLOCK_MONOTONIC) - wall_start);
  }
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

// Alternates floor and update, so that other load affects both.
void server_step(benchmark::State& state, OptimizerKind kind) {
  pushpull::UpdateFloor floor(state.range(0), 2, 1);
  const int64_t total = floor.elements();
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::array<Floats, 2> gradients = {touched(bytes, 1e-3F), touched(bytes, 2e-3F)};
  pushpull::ThreadPool pool(static_cast<int>(state.range(1)));
  pushpull::TensorTable table;
  pushpull::TensorInfo weight;
  weight.name = "weight";
  weight.shape = {total};
  table.add(weight);
  const pushpull::SliceMap map(total, kSliceBytes, 1);
  pushpull::Shard shard(map, 0, table, {.kind = kind});
  shard.initialise(1);
  std::vector<std::vector<PartialSum>> parts;
  for (const int slice : shard.slices()) {
    const pushpull::Range e = map.elements(slice);
    const auto of = [&](const Floats& gradient) {
      const std::span<const float> floats(gradient.get() + e.lo, static_cast<size_t>(e.size()));
      return pushpull::Payload{gradient, std::as_bytes(floats)};
    };
    parts.push_back({{{0, 1}, of(gradients[0])}, {{1, 2}, of(gradients[1])}});
  }
  std::vector<pushpull::SliceUpdate> updates;
  for (const int slice : shard.slices()) {
    updates.push_back({slice, parts[static_cast<size_t>(slice)]});
  }
  pushpull::UpdateInfo info;
  info.learning_rate = 1e-3;
  info.divisor = 2.0;
  for (int i = 0; i < 2; ++i) shard.apply(updates, 2, info, 1, pool);  // makes all pages present
  Times floors;
  Times steps;
  while (state.KeepRunning()) {
    floors.add([&] { floor.pass(pool); });
    steps.add([&] { shard.apply(updates, 2, info, 1, pool); });
    state.SetIterationTime(steps.wall.back());
  }
  state.counters["floor_ms"] = median(floors.wall) * 1e3;
  state.counters["step_ms"] = median(steps.wall) * 1e3;
  state.counters["ratio"] = median(steps.wall) / median(floors.wall);
  state.counters["cpu_ratio"] = median(steps.cpu) / median(floors.cpu);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"bytes", "threads"})->UseManualTime()->Unit(benchmark::kMillisecond);
  for (const int64_t mib : {1, 4, 25, 100}) {
    for (const int64_t threads : {1, 2}) bench->Args({mib << 20, threads});
  }
}

BENCHMARK_CAPTURE(server_step, momentum, OptimizerKind::kMomentum)->Apply(sizes);
BENCHMARK_CAPTURE(server_step, sgd, OptimizerKind::kSgd)->Apply(sizes);
BENCHMARK_CAPTURE(server_step, nesterov, OptimizerKind::kNesterov)->Apply(sizes);
BENCHMARK_CAPTURE(server_step, adam, OptimizerKind::kAdam)->Apply(sizes);
BENCHMARK_CAPTURE(server_step, adamw, OptimizerKind::kAdamW)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
