// The floor of an exchange over a link: several clients, each a process that repeatedly pushes a
// whole tensor and then pulls one, against a server that only moves bytes. The update is not
// counted, since it can overlap. `pushpull bench` and floors_bench share this definition.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cli/bench/link.h"
#include "cli/bench/percentiles.h"
#include "common/base/unique_fd.h"

namespace pushpull::floors {

enum class Verb : uint32_t { kPush = 1, kPull = 2, kExchange = 3 };  // a push, then a pull

// Microseconds; 0 for a part that was not run.
struct RoundTimes {
  double push_us = 0.0;
  double pull_us = 0.0;
};

// Several clients of one server that run in parallel: client 0 in this process, the others in
// forked processes that receive orders over a socket. One thread.
class LinkClients {
 public:
  // Forks, so the caller must have no other thread. max_rounds: limit of one run.
  LinkClients(LinkServer& server, size_t count, size_t max_rounds);
  ~LinkClients();
  LinkClients(const LinkClients&) = delete;
  LinkClients& operator=(const LinkClients&) = delete;

  // All clients start at once and run `rounds` rounds without waiting for each other. Returns when
  // all have finished. Throws Error(kFailed) if a client fails or misses its deadline.
  void run(Verb verb, size_t rounds);

  size_t count() const { return others_.size() + 1; }
  // Returns the client's times in the last run.
  std::span<const RoundTimes> rounds(size_t client) const;

 private:
  std::span<RoundTimes> times_of(size_t client, size_t rounds) const;
  int obey(int fd, size_t client, Link& link) const;

  size_t max_rounds_;
  size_t rounds_ = 0;  // of the last run
  SharedPages times_;  // max_rounds_ per client
  std::unique_ptr<Link> mine_;
  std::vector<UniqueFd> others_;
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace pushpull::floors

namespace pushpull {

// Times of the push until the server has the whole tensor, and of the pull until the client has it;
// microseconds.
struct OneWay {
  Percentiles push;
  Percentiles pull;
};

struct LinkFloor {
  Percentiles exchange;  // push and pull of one round, in microseconds
  OneWay way;
};

namespace floors {

constexpr int64_t kMinRounds = 6;
constexpr int64_t kMaxRounds = 1000;

// Collects the rounds of all clients over any number of runs.
class LinkTimes {
 public:
  // Adds the rounds of the last run.
  void add(const LinkClients& clients);
  // Returns the mean over clients of each client's percentiles. A mean, because a run has several
  // clients but only one machine. Needs at least one round.
  LinkFloor floor() const;

 private:
  std::vector<std::vector<RoundTimes>> clients_;
};

}  // namespace floors

// Measures a floor. Chooses the number of rounds so that the measurement takes some tenths of a
// second, at most `max_rounds` per client (at least kMinRounds). Forks, so the calling process
// must have no other thread. Throws Error(kFailed) if a socket or a client fails.
LinkFloor link_floor(floors::LinkKind kind, int64_t bytes, int64_t clients,
                     int64_t max_rounds = floors::kMaxRounds);

}  // namespace pushpull
