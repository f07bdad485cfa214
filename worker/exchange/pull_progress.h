// The weights of the pull in progress as far as they have come: which slices are missing, of which
// version a server's slices are, and whether they are those at the barrier. Checks what servers say before
// it touches memory. Knows no time and no socket. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/net/message.h"
#include "worker/exchange/connection_map.h"
#include "worker/exchange/weights_buffer.h"
#include "worker/schedule/schedule.h"

namespace pushpull {

class PullProgress {
 public:
  enum Taken {
    kNone,   // nothing of use
    kSome,   // slices that were missing
    kApart,  // weights that cannot stay where they lie: the pull must begin anew
  };

  // Borrows both. The weights go to the buffer.
  PullProgress(const ConnectionMap& connections, WeightsBuffer& weights);

  // A pull begins: nothing of it is here.
  void begin(const PullAim& aim);
  // Takes in what a server says in answer to this pull.
  //   in_place: the payloads stay as they are for as long as they are held.
  Taken take(int server, const wire::Weights& weights, const std::vector<Payload>& payloads,
             bool in_place);

  // Slices of the server that have not come.
  int missing(int server) const { return at(server).missing; }
  // Puts into a repeated pull which of those on this connection are missing, the lowest ones.
  void put_missing(int server, int connection, wire::Pull* pull) const;
  // kPerServer, and all is here: the version of the server's slices.
  int64_t version(int server) const { return at(server).version; }
  // All is here, and is exactly the barrier that was asked for.
  bool at_barrier() const;

 private:
  struct Server {
    int missing = 0;
    int64_t version = -1;    // kPerServer: of the slices that have come; -1: none has
    bool at_barrier = true;  // those that have come are exactly the barrier's
  };
  const Server& at(int server) const { return servers_[static_cast<size_t>(server)]; }
  bool is_of_use(int server, const wire::SliceVersion& entry, const Payload& payload);
  bool is_one_version(int server, int64_t version);

  const ConnectionMap& connections_;
  WeightsBuffer& weights_;
  std::vector<Server> servers_;
  PullAim aim_;
};

}  // namespace pushpull
