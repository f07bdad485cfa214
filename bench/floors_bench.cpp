// Floors of this machine: memory, sockets, shared memory, bare ZeroMQ (cli/bench).
//   floors_bench --benchmark_filter='memory|link_tcp' --benchmark_out=FILE.json
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/samples.h"
#include "cli/bench/floats.h"
#include "cli/bench/link_floor.h"
#include "cli/bench/update_floor.h"
#include "common/base/process.h"
#include "common/base/thread_pool.h"

namespace pushpull::floors {

// Floors of memory: copy, w -= lr * g, and the update of a whole sync step of two workers (reads
// two gradients, momentum and weights once, writes momentum and weights once), on one and two
// threads. GB_s counts the vector of weights once, whatever the pass moves.

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

// Floors of the links between processes of one host, without pushpull (cli/bench): each with one
// client, and with two at the same time. GB_s counts the bytes of all clients.

namespace {

constexpr int64_t kBatchBytes = 64 << 20;

void link(benchmark::State& state, LinkKind kind, Verb verb) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const auto count = static_cast<size_t>(state.range(1));
  const auto batch = std::clamp<int64_t>(kBatchBytes / state.range(0), 4, 200);
  const auto rounds = static_cast<size_t>(batch);
  const auto server = serve_link(kind, bytes, count);
  LinkClients clients(*server, count, rounds);
  clients.run(Verb::kExchange, 3);
  LinkTimes times;
  while (state.KeepRunningBatch(batch)) {
    clients.run(verb, rounds);
    times.add(clients);
  }
  const int ways = verb == Verb::kExchange ? 2 : 1;
  report(state, times.floor().exchange,
         static_cast<double>(ways * state.range(0) * state.range(1)));
}

const std::vector<std::pair<std::string, LinkKind>>& kinds() {
  static const std::vector<std::pair<std::string, LinkKind>> table = {
      {"tcp", LinkKind::kTcp},
      {"unix", LinkKind::kUnix},
      {"shm", LinkKind::kSharedMemory},
      {"zmq_tcp", LinkKind::kZmqTcp},
      {"zmq_ipc", LinkKind::kZmqIpc}};
  return table;
}

const std::vector<std::pair<std::string, Verb>>& verbs() {
  static const std::vector<std::pair<std::string, Verb>> table = {
      {"push", Verb::kPush}, {"pull", Verb::kPull}, {"exchange", Verb::kExchange}};
  return table;
}

// Registers link_tcp_push/bytes:4096/clients:1 and so on.
const bool registered = [] {
  for (const auto& [way, kind] : kinds()) {
    for (const auto& [what, verb] : verbs()) {
      const std::string name = std::string("link_").append(way).append("_").append(what);
      benchmark::RegisterBenchmark(name.c_str(), link, kind, verb)
          ->ArgNames({"bytes", "clients"})
          ->ArgsProduct({{4 << 10, 64 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20}, {1, 2}})
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
  return true;
}();

}  // namespace

}  // namespace pushpull::floors

int main(int argc, char** argv) {
  pushpull::keep_heap();  // as pushpull's programs do
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
