// The floor of an exchange over a link: several clients, each a process that repeatedly pushes a
// whole tensor and then pulls one, against a server that only moves bytes. The update is not
// counted, since it can overlap. `pushpull bench` and floors_bench share this definition.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/floors/link_clients.h"
#include "cli/floors/percentiles.h"

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
