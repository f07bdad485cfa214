// What a ZeroMQ socket says first: its greeting (ZMTP 3, https://rfc.zeromq.org/spec/23), which
// names how it and its peer are to know each other. libzmq does not tell it to who connects.
#pragma once

#include <string>
#include <zmq.hpp>

namespace pushpull {

// "NULL", "PLAIN" or "CURVE": the mechanism of who listens at `address`, or "" where nobody has
// answered as ZeroMQ does within `timeout_ms`. Connects, reads the greeting and leaves.
std::string mechanism_at(zmq::context_t& context, const std::string& address, int timeout_ms);

}  // namespace pushpull
