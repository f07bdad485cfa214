// Tells a socket that connects why it is not let in: libzmq tries again for ever, or gives up, and
// says nothing but through its monitor. Used by the socket's thread.
#pragma once

#include <optional>
#include <string>
#include <zmq.hpp>

#include "common/keys/credentials.h"

namespace pushpull {

class HandshakeWatch {
 public:
  // Call it before `socket` connects to `address`.
  HandshakeWatch(zmq::context_t& context, zmq::socket_t& socket, std::string address,
                 Credentials credentials);
  // Before the socket closes.
  ~HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;

  // Why the peer will not let this socket in, and the way out; empty: it may still do so. Takes up
  // to a second where the peer has closed several times without a word.
  std::optional<std::string> refused();

 private:
  enum class Seen { kNothing, kOtherMechanism, kDenied };

  void take_events();
  std::optional<std::string> ask_peer();
  std::string other_key() const;

  zmq::context_t& context_;
  zmq::socket_t& socket_;
  const std::string address_;
  const Credentials credentials_;
  zmq::socket_t events_;
  Seen seen_ = Seen::kNothing;
  int closed_ = 0;  // times in a row that the peer closed before the handshake was over
};

}  // namespace pushpull
