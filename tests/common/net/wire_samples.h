// One message of every kind with all fields filled and matching payloads, for the tests of frames.
#pragma once

#include <vector>

#include "common/net/message.h"

namespace pushpull {

// Returns n floats: first, first + 1, ... The owner is a std::vector<float>.
Payload payload_of_floats(size_t n, float first = 0.0F);

// Returns one message for each body in wire.proto, in its order; lists have two elements.
std::vector<Message> every_kind_of_message();

}  // namespace pushpull
