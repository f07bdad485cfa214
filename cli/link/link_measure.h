// Measures a link between two hosts over TCP: one-way throughput and round trips of small messages.
// One process answers, the other measures. One thread each.
#pragma once

#include <string>

#include "common/net/address.h"

namespace pushpull {

struct LinkFound {
  double bytes_per_second = 0.0;   // payload received; headers add some 5 %
  double round_trip_ms = 0.0;      // median of up to 200, sequential, on an idle link
  double retransmitted = 0.0;      // fraction of the bytes that TCP sent again, 0 to 1
  std::string congestion_control;  // TCP's: cubic, bbr, ...

  // Returns "rate_mbit=95.1 round_trip_ms=10.2 retransmitted_percent=0 congestion_control=cubic".
  std::string to_string() const;
};

// Prints "listening on HOST:PORT" and serves measure_link() calls one after the other. Returns
// after the one that announces the last measurement. Throws Error(kUnreachable) if no process
// connects for `idle_s` seconds.
void answer_measuring(const Address& listen, double idle_s);

// Measures the link to the process at `to` for about `seconds`, and announces the last measurement
// to it. Throws Error(kUnreachable) if the process does not answer within 10 s, or is silent for as
// long.
LinkFound measure_link(const Address& to, double seconds);

}  // namespace pushpull
