// The floor of an exchange over a link: so many clients, each a process that pushes a whole tensor
// and then pulls one, again and again, against a server that only moves bytes. The update is not
// counted, since it can overlap. `pushpull bench` and floors_bench print figures of this one
// definition.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/floors/link_clients.h"
#include "cli/floors/percentiles.h"

namespace pushpull {

// The push until the server has it all, then the pull until all is here; in microseconds.
struct OneWay {
  Percentiles push;
  Percentiles pull;
};

struct LinkFloor {
  Percentiles exchange;  // push and pull of one round, in microseconds
  OneWay way;
};

namespace floors {

constexpr int64_t kLeastRounds = 6;
constexpr int64_t kMostRounds = 1000;

// The rounds of all clients, over any number of runs.
class LinkTimes {
 public:
  // The rounds of the last run.
  void add(const LinkClients& clients);
  // Each figure is taken for each client, then their mean: clients are many, machines are one. At
  // least one round.
  LinkFloor floor() const;

 private:
  std::vector<std::vector<RoundTimes>> clients_;
};

}  // namespace floors

// Measures it: so many rounds that it takes some tenths of a second, but at most `most_rounds` of
// each client (at least kLeastRounds). Forks, so the calling process must have no other thread.
// Throws Error(kFailed) where a socket or a client fails.
LinkFloor link_floor(floors::LinkKind kind, int64_t bytes, int64_t clients,
                     int64_t most_rounds = floors::kMostRounds);

}  // namespace pushpull
