// A worker's connections to other workers, for messages to them. Nothing but their proofs comes back on
// these (docs/keys.md), and messages wait for that. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "common/net/endpoint.h"
#include "common/net/message.h"

namespace pushpull {

struct PeerAddress {
  std::string endpoint;
  uint64_t incarnation = 0;
  friend bool operator==(const PeerAddress&, const PeerAddress&) = default;
};

class PeerDealers {
 public:
  // credentials: of this worker; Credentials::to names another one.
  PeerDealers(zmq::context_t& context, const EndpointLimits& limits, Credentials credentials)
      : context_(context), limits_(limits), credentials_(std::move(credentials)) {}

  // Connects to these workers. Connections to workers that it was connected to before stay open, and all
  // others are closed, without their queued messages.
  //   self: index of this worker, to which there is no connection.
  void connect(const std::vector<PeerAddress>& all, int self);

  // to: an index in `all`.
  void send(int to, const Message& message) { dealers_[static_cast<size_t>(to)]->send(message); }
  // Takes in proofs and sends the messages that wait for them. Returns the index of a worker that has
  // not proven itself yet, or -1. Call often until then.
  int unready();
  // Adds the connections on which a proof is still to arrive.
  void add_unready(std::vector<zmq::pollitem_t>& items);
  // Returns a line for users about one of the connections, or "". See Dealer::take_warning.
  std::string take_warning();

 private:
  zmq::context_t& context_;
  const EndpointLimits limits_;
  const Credentials credentials_;
  std::vector<PeerAddress> all_;
  std::vector<std::unique_ptr<Dealer>> dealers_;  // null for this worker itself
};

}  // namespace pushpull
