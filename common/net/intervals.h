// How often members of a job say something again on the control connection (docs/protocol.md). In
// milliseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pushpull {

constexpr int64_t kHelloMs = 500;        // Hello, until it is answered
constexpr int64_t kRequestMs = 1000;     // Declare and EvalResult, until they are taken
constexpr int64_t kStepRequestMs = 200;  // Norms and Arrived: a step waits for the answer
constexpr int64_t kWaitingMs = 5000;     // lines for people who wait

// The connection between a member and the coordinator is not trusted any more when one of them has not
// heard the other for so long: the member opens another one. Several heartbeats fit into it.
inline int64_t unheard_ms(double timeout_s) {
  return std::max<int64_t>(1000, static_cast<int64_t>(timeout_s * 1000 / 3));
}

// Several heartbeats fit into the time after which a silent member counts as lost.
inline int64_t heartbeat_ms(double timeout_s) {
  return std::min<int64_t>(1000, static_cast<int64_t>(timeout_s * 200));
}

}  // namespace pushpull
