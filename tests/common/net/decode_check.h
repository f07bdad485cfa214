// Checks decode() for any frames: it refuses them with a reason, or the message is consistent and
// can be read to its last byte. For the tests and the fuzzer.
#pragma once

#include <vector>
#include <zmq.hpp>

namespace pushpull {

// Returns whether the frames were accepted. Ends the process if decode() breaks its contract.
bool check_decoding(std::vector<zmq::message_t> frames);

}  // namespace pushpull
