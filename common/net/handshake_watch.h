// Finds out why a connecting socket is refused, and when its connection was closed. libzmq retries
// for ever or gives up, and reports both only through its monitor. Used by the socket's thread.
#pragma once

#include <optional>
#include <string>
#include <zmq.hpp>

#include "common/net/credentials.h"

namespace pushpull {

// Returns "NULL", "PLAIN" or "CURVE": the mechanism of the socket that listens at `address`, or ""
// if no ZeroMQ socket answers within `timeout_ms`. Connects, reads the greeting (ZMTP 3,
// https://rfc.zeromq.org/spec/23), which libzmq does not report, and disconnects.
std::string mechanism_at(zmq::context_t& context, const std::string& address, int timeout_ms);

class HandshakeWatch {
 public:
  // Construct it before `socket` connects to `address`.
  HandshakeWatch(zmq::context_t& context, zmq::socket_t& socket, std::string address,
                 Credentials credentials);
  // Destroy it before the socket closes. The socket's object may move meanwhile.
  ~HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;

  // Returns why the peer refuses this socket, and the fix; nullopt if it may still accept. Takes up
  // to a second if the peer has closed several times without a reason.
  std::optional<std::string> refused();
  // Returns whether a connection whose handshake was done has been closed since the last call.
  bool take_closed();

 private:
  enum class Seen { kNothing, kOtherMechanism, kDenied };

  void take_events();
  std::optional<std::string> ask_peer();
  std::string other_key() const;

  zmq::context_t& context_;
  void* const socket_;  // libzmq's handle
  const std::string address_;
  const Credentials credentials_;
  zmq::socket_t events_;
  Seen seen_ = Seen::kNothing;
  bool connected_ = false;  // the handshake is done
  bool was_closed_ = false;
  int closed_ = 0;  // times in a row that the peer closed during the handshake
};

}  // namespace pushpull
