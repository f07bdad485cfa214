// Reads the greeting of a ZeroMQ socket (ZMTP 3, https://rfc.zeromq.org/spec/23), which names the
// mechanism by which the two ends authenticate each other. libzmq does not report it to a
// connecting socket.
#pragma once

#include <string>
#include <zmq.hpp>

namespace pushpull {

// Returns "NULL", "PLAIN" or "CURVE": the mechanism of the socket that listens at `address`, or ""
// if no ZeroMQ socket answers within `timeout_ms`. Connects, reads the greeting and disconnects.
std::string mechanism_at(zmq::context_t& context, const std::string& address, int timeout_ms);

}  // namespace pushpull
