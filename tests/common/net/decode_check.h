// What must hold for any frames whatever: decode refuses with a reason, or its message fits
// together and can be read to its last byte. Used by the tests and the fuzzer.
#pragma once

#include <vector>
#include <zmq.hpp>

namespace pushpull {

// True where the frames were accepted. Ends the process where the promise is broken.
bool check_decoding(std::vector<zmq::message_t> frames);

}  // namespace pushpull
