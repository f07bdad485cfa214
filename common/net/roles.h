// What an observer may send on the control connection. A member may send everything. Any thread.
#pragma once

#include "common/net/message.h"

namespace pushpull {

// The answer to every other message of an observer is `Refused` (Router::receive).
inline bool observer_may_send(const wire::Header& header) { return header.has_status_request(); }

}  // namespace pushpull
