// What the ways between processes of one host allow, without pushpull: each with one client, and
// with two at the same time. GB_s counts what all clients move.
#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "bench/floors/clients.h"
#include "bench/floors/link.h"
#include "bench/floors/samples.h"

namespace pushpull::floors {
namespace {

std::unique_ptr<LinkServer> serve(LinkKind kind, size_t bytes, size_t clients) {
  const bool zmq = kind == LinkKind::kZmqTcp || kind == LinkKind::kZmqIpc;
  return zmq ? serve_zmq(kind, bytes, clients) : serve_stream(kind, bytes, clients);
}

void link(benchmark::State& state, LinkKind kind, Verb verb) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const auto count = static_cast<size_t>(state.range(1));
  const auto server = serve(kind, bytes, count);
  Clients clients(*server, count);
  for (int i = 0; i < 3; ++i) clients.run(Verb::kExchange);
  Samples samples;
  while (state.KeepRunning()) samples.time([&] { clients.run(verb); });
  const int ways = verb == Verb::kExchange ? 2 : 1;
  samples.report(state, static_cast<double>(ways * state.range(0) * state.range(1)));
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

// link_tcp_push/bytes:4096/clients:1 and so on.
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
