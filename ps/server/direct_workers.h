// The direct connections of this server to its workers (common/direct): answers AskDirect, admits
// workers that prove the run's key, moves messages. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/direct/direct_connection.h"
#include "common/direct/direct_door.h"
#include "common/net/credentials.h"
#include "ps/server/outgoing.h"

namespace pushpull {

struct Job;

class DirectWorkers {
 public:
  // address, demand: of the data port. rings: waits for the connections; null if there are none.
  // bad: called when a connection is closed because its bytes are no message, and when there can be
  // none at all. refused: see DirectDoor.
  using Bad = std::function<void(const PeerId& from, const Refusal& refusal)>;
  DirectWorkers(const Job& job, uint64_t term_id, const std::string& address, const Demand& demand,
                Rings* rings, Bad bad, DirectDoor::Refused refused);

  // Closes the connections of lost workers.
  void on_state(const wire::State& state);
  // Returns the answer to AskDirect, or a Status with not_ready if the worker is not known yet.
  //   peer: its data connection.
  Message on_ask(const PeerId& peer, const wire::AskDirect& ask, int64_t now_ms);
  // Admits workers. Call in each turn.
  void turn(int64_t now_ms);
  // Returns the next message, or nullopt. Its sender is a name of that connection, to which `send`
  // sends.
  std::optional<std::pair<PeerId, Message>> receive();
  // Sends the message if its receiver has a direct connection and the message fits. Otherwise names
  // the worker's data connection as the receiver, if it is one of these workers, and returns false.
  bool send(Outgoing& out);

 private:
  struct Worker {
    PeerId socket;  // the data connection that asked last
    std::unique_ptr<DirectConnection> connection;
  };
  DirectDoor* door();

  const uint64_t term_id_;
  const std::string address_;
  const Demand demand_;
  Rings* const rings_;
  const Bad bad_;
  const DirectDoor::Refused refused_;
  std::optional<DirectDoor> door_;      // from the first question on
  std::string why_no_door_;             // why there is none, in spite of a question
  std::map<uint64_t, Worker> workers_;  // by incarnation
  uint64_t received_from_ = 0;          // the worker that was read last
};

}  // namespace pushpull
