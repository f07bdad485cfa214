// A data connection that sends nothing but a nonce until the server has proven the run's key, and
// takes in nothing else either (docs/keys.md). Messages wait meanwhile. libzmq never connects such a
// socket again: it would send queued messages to any process that listens there by then. A
// connection that ends is replaced by a new socket with a new nonce. Used by Dealer, on its thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <zmq.hpp>

#include "common/net/data_proof.h"
#include "common/net/message.h"

namespace pushpull {

class ProvenConnection {
 public:
  // make_socket: returns a DEALER with all options but those of the proof. credentials: of
  // Proof::kChallenge. Throws Error(kUsage) if `address` is none.
  ProvenConnection(zmq::context_t& context, std::string address, const Credentials& credentials,
                   std::function<zmq::socket_t()> make_socket);
  ~ProvenConnection();
  ProvenConnection(const ProvenConnection&) = delete;
  ProvenConnection& operator=(const ProvenConnection&) = delete;

  // Changes when the connection is replaced: read it before each poll.
  zmq::socket_t& socket() { return socket_; }

  // Notices that the connection has ended, replaces it when that is due, and sends messages that
  // wait. Call often; most calls only read the clock.
  void turn();
  // Sends the message, or keeps it until the server has proven itself. At most 4,096 messages wait;
  // the newest ones are dropped.
  void send(const Message& message);
  // Handles a message that has arrived. Returns whether it is for the reader.
  bool take(const Message& message);

  bool proven() const { return proof_.proven(); }
  int64_t refused() const { return refused_; }
  // Returns a line for users, once for each process that does not prove the key, else "".
  std::string take_warning() { return std::exchange(warning_, {}); }

 private:
  void open();
  void close_events();
  bool has_ended();
  void refuse(const std::string& what);
  void flush();

  zmq::context_t& context_;
  const std::string address_;
  const std::function<zmq::socket_t()> make_socket_;
  ServerProof proof_;
  zmq::socket_t socket_;
  zmq::socket_t events_;  // of socket_
  std::deque<Message> held_;
  int64_t look_ms_ = 0;  // when to look for events next
  int64_t refused_ = 0;
  bool warned_ = false;
  std::string warning_;
};

}  // namespace pushpull
