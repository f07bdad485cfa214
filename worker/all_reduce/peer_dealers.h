// One connection to each other worker, for messages to it. Nothing but the worker's proof comes back
// on it (docs/keys.md), and messages wait for that. Used by Peers, on its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "common/net/endpoint.h"

namespace pushpull {

struct PeerAddress {
  std::string endpoint;
  uint64_t incarnation = 0;
};

class PeerDealers {
 public:
  // all: by rank, including this worker, to which there is no connection.
  PeerDealers(zmq::context_t& context, const std::vector<PeerAddress>& all, int rank,
              const EndpointLimits& limits, const Credentials& credentials);

  void send(int to, const Message& message) { at(to).send(message); }
  // Takes in proofs and sends the messages that wait for them. Returns the rank of a worker that has
  // not proven itself yet, or -1. Call often until then.
  int unready();
  // Adds the connections on which a proof is still to arrive.
  void add_unready(std::vector<zmq::pollitem_t>& items);

 private:
  Dealer& at(int rank) { return *dealers_[static_cast<size_t>(rank)]; }

  std::vector<std::unique_ptr<Dealer>> dealers_;  // null for this worker itself
};

}  // namespace pushpull
