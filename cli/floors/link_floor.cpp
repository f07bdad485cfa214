#include "cli/floors/link_floor.h"

#include <algorithm>

#include "common/base/error.h"

namespace pushpull {

namespace floors {

std::unique_ptr<LinkServer> serve_link(LinkKind kind, size_t bytes, size_t clients) {
  const bool zmq = kind == LinkKind::kZmqTcp || kind == LinkKind::kZmqIpc;
  return zmq ? serve_zmq(kind, bytes, clients) : serve_stream(kind, bytes, clients);
}

void LinkTimes::add(const LinkClients& clients) {
  clients_.resize(clients.count());
  for (size_t i = 0; i < clients.count(); ++i) {
    const auto rounds = clients.rounds(i);
    clients_[i].insert(clients_[i].end(), rounds.begin(), rounds.end());
  }
}

LinkFloor LinkTimes::floor() const {
  PP_ASSERT(!clients_.empty());
  const auto mean_over_clients = [&](const auto& time_of) {
    Percentiles sum;
    for (const std::vector<RoundTimes>& rounds : clients_) {
      std::vector<double> times;
      times.reserve(rounds.size());
      for (const RoundTimes& round : rounds) times.push_back(time_of(round));
      const Percentiles one = percentiles(times);
      sum.p50 += one.p50;
      sum.p99 += one.p99;
    }
    const auto count = static_cast<double>(clients_.size());
    return Percentiles{sum.p50 / count, sum.p99 / count};
  };
  return {mean_over_clients([](const RoundTimes& r) { return r.push_us + r.pull_us; }),
          {mean_over_clients([](const RoundTimes& r) { return r.push_us; }),
           mean_over_clients([](const RoundTimes& r) { return r.pull_us; })}};
}

}  // namespace floors

LinkFloor link_floor(floors::LinkKind kind, int64_t bytes, int64_t clients, int64_t max_rounds) {
  constexpr int64_t kMovedBytes = int64_t{512} << 20;
  const int64_t most = std::clamp(max_rounds, floors::kMinRounds, floors::kMaxRounds);
  const auto rounds =
      static_cast<size_t>(std::clamp(kMovedBytes / bytes, floors::kMinRounds, most));
  const auto count = static_cast<size_t>(clients);
  const auto server = floors::serve_link(kind, static_cast<size_t>(bytes), count);
  floors::LinkClients all(*server, count, rounds);
  all.run(floors::Verb::kExchange, std::max<size_t>(2, rounds / 10));  // warm-up
  all.run(floors::Verb::kExchange, rounds);
  floors::LinkTimes times;
  times.add(all);
  return times.floor();
}

}  // namespace pushpull
