// A worker's direct connections to its servers (common/direct), if servers hold few bytes: asks each
// server that shares no memory for one, opens it, and asks again if it is lost. Messages take ZeroMQ's sockets meanwhile.
// Used by the trainer's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/console.h"
#include "common/direct/direct_connection.h"
#include "common/direct/direct_door.h"
#include "common/net/credentials.h"
#include "worker/exchange/push_pull.h"

namespace pushpull {

class DirectLinks {
 public:
  // Most bytes of gradients that a server receives in a step, from all workers.
  static constexpr int64_t kMaxBytes = int64_t{1} << 20;

  // rings: waits for the connections; null if there are none. rank: of this worker, for messages.
  DirectLinks(const PushPullSetup& setup, Rings* rings, int rank);

  // The worker reaches the server at `address` from now on. Closes an earlier connection.
  void connect(int server, const std::string& address, const Credentials& credentials);

  // Opens connections whose time has come. Returns the questions that are due.
  std::vector<ToServer> due(int64_t now_ms);
  // Handles a server's message. Returns false if it is for others.
  bool on_message(int server, const Message& message, int64_t now_ms);
  // Sends the message. Returns false if there is no connection, or the message does not fit.
  bool send(const ToServer& message);
  // Returns the next message of the server.
  std::optional<Message> receive(int server, int64_t now_ms);

 private:
  struct Server {
    bool wants = false;
    std::string address;
    Credentials credentials;
    int64_t ask_ms = 0;  // when to ask
    int64_t wait_ms = 0;
    std::unique_ptr<DirectOpening> opening;
    std::unique_ptr<DirectConnection> connection;
    bool logged = false;  // that it has none
  };

  Server& at(int server) { return servers_[static_cast<size_t>(server)]; }
  void ask_later(Server& server, int64_t now_ms);
  void fail(int server, const std::string& why, int64_t now_ms);
  void open(int server, int64_t now_ms);

  const uint64_t term_id_;
  const uint64_t incarnation_;
  Rings* const rings_;
  const Log log_;
  std::vector<Server> servers_;
};

}  // namespace pushpull
