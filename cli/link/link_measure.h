// Measures a link between two hosts over TCP: bytes a second one way, and round trips of small
// messages. One process answers, another asks. One thread each.
#pragma once

#include <string>

#include "common/net/address.h"

namespace pushpull {

struct LinkFound {
  double bytes_per_second = 0.0;   // of payload, as they arrive; headers take some 5 % more
  double round_trip_ms = 0.0;      // median of up to 200, one at a time, nothing else under way
  double retransmitted = 0.0;      // part of the bytes that TCP sent again, 0 to 1
  std::string congestion_control;  // of TCP: cubic, bbr, ...

  // "rate_mbit=95.1 round_trip_ms=10.2 retransmitted_percent=0 congestion_control=cubic"
  std::string to_string() const;
};

// Prints "listening on HOST:PORT", answers one measure_link() after the other, until one says that
// it was the last. Throws Error(kUnreachable) when nobody has asked for `idle_s`.
void answer_measuring(const Address& listen, double idle_s);

// Asks who answers at `to`, for about `seconds`, and says that it was the last. Throws
// Error(kUnreachable) when nobody is there within 10 s, or silent for as long.
LinkFound measure_link(const Address& to, double seconds);

}  // namespace pushpull
