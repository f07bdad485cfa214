// Floors of the links between processes of one host, without pushpull (cli/bench): each with one
// client, and with two at the same time. GB_s counts the bytes of all clients.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bench/samples.h"
#include "cli/bench/link_floor.h"

namespace pushpull::floors {
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
