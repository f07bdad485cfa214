// The messages that an observer may send on the control connection. A member may send all. Any
// thread.
#pragma once

#include "common/net/message.h"

namespace pushpull {

// Router::receive answers every other message of an observer with `Refused`.
inline bool observer_may_send(const wire::Header& header) { return header.has_status_request(); }

}  // namespace pushpull
