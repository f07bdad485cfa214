#include "cli/bench/link_floor.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <string>

#include "common/base/error.h"
#include "common/base/process.h"

namespace pushpull::floors {

namespace {

struct Order {
  Verb verb;
  uint32_t rounds;
};

[[noreturn]] void clients_failed(const std::string& what) {
  throw Error(ErrorCode::kFailed, "[floors] a client process " + what +
                                      "; is there enough memory for its two tensors?");
}

// Returns false if the other side is disconnected, or silent past its deadline.
template <typename Word>
bool hear(int fd, Word& word) {
  return recv(fd, &word, sizeof word, MSG_WAITALL) == sizeof word;
}

template <typename Word>
bool tell(int fd, const Word& word) {
  return send(fd, &word, sizeof word, MSG_NOSIGNAL) == sizeof word;
}

void act(Link& link, Verb verb, std::span<RoundTimes> rounds) {
  for (RoundTimes& round : rounds) {
    const double begin = now_seconds();
    if (verb != Verb::kPull) link.push();
    const double pushed = now_seconds();
    if (verb != Verb::kPush) link.pull();
    round = {(pushed - begin) * 1e6, (now_seconds() - pushed) * 1e6};
    if (verb == Verb::kPull) round.push_us = 0.0;
    if (verb == Verb::kPush) round.pull_us = 0.0;
  }
}

}  // namespace

LinkClients::LinkClients(LinkServer& server, size_t count, size_t max_rounds)
    : max_rounds_(max_rounds), times_(count * max_rounds * sizeof(RoundTimes)) {
  for (size_t i = 1; i < count; ++i) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) clients_failed("has no socket");
    others_.emplace_back(fds[0]);
    UniqueFd theirs(fds[1]);
    children_.push_back(std::make_unique<Child>([&] {
      others_.clear();
      return obey(theirs.get(), i, *server.connect(i));
    }));
  }
  mine_ = server.connect(0);
}

LinkClients::~LinkClients() {
  others_.clear();  // the client processes end when their sockets close
  mine_.reset();
}

std::span<RoundTimes> LinkClients::times_of(size_t client, size_t rounds) const {
  return {static_cast<RoundTimes*>(times_.data()) + client * max_rounds_, rounds};
}

std::span<const RoundTimes> LinkClients::rounds(size_t client) const {
  return times_of(client, rounds_);
}

int LinkClients::obey(int fd, size_t client, Link& link) const {
  for (Order order{}; hear(fd, order);) {
    act(link, order.verb, times_of(client, order.rounds));
    if (!tell(fd, order)) return 1;
  }
  return 0;
}

void LinkClients::run(Verb verb, size_t rounds) {
  PP_ASSERT(rounds <= max_rounds_);
  rounds_ = rounds;
  Order order{verb, static_cast<uint32_t>(rounds)};
  // A single push or pull is limited to kDeadlineSeconds by its own process.
  const timeval deadline{kDeadlineSeconds * static_cast<time_t>(rounds + 1), 0};
  for (const UniqueFd& other : others_) {
    setsockopt(other.get(), SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    if (!tell(other.get(), order)) clients_failed("is gone");
  }
  act(*mine_, verb, times_of(0, rounds));
  for (const UniqueFd& other : others_) {
    if (!hear(other.get(), order)) clients_failed("did not answer");
  }
}

}  // namespace pushpull::floors

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
