// One message of every kind, all fields filled, with payloads that fit: for the tests of frames.
#pragma once

#include <vector>

#include "common/net/message.h"

namespace pushpull {

// n floats: first, first + 1, ... The owner is a std::vector<float>.
Payload payload_of_floats(size_t n, float first = 0.0F);

// Every body that wire.proto has, in its order; lists have two elements.
std::vector<Message> every_kind_of_message();

}  // namespace pushpull
