// How much of a pull's weights may be on its way on each connection, and when the server must hear
// what has arrived. A window holds about as much as the link carries in 50 ms, measured on earlier
// pulls: more would only stand in queues, where what forward needs first cannot overtake it. Pure
// bookkeeping; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/exchange/connection_map.h"

namespace pushpull {

class PullWindows {
 public:
  // least_bytes, most_bytes: of a window; 0 most: no limits.
  PullWindows(const ConnectionMap& connections, int64_t least_bytes, int64_t most_bytes);

  // A pull goes out on this connection.
  //   anew: nothing of its answer counts so far.
  //   limited: the answer may have a window.
  // Returns the window in bytes; 0: none.
  int64_t open(int server, int connection, bool anew, bool limited);

  // Weights have come on this connection.
  //   all_here: the server's answer is complete.
  // Returns how many bytes of the pull the server must hear to have arrived; none: not now.
  std::optional<int64_t> count(int server, int connection, int64_t bytes, bool all_here,
                               int64_t now_ms);

  // Bytes of the running pull that have come.
  int64_t received(int server, int connection) const {
    return connections_[static_cast<size_t>(server)][static_cast<size_t>(connection)].received;
  }

 private:
  struct Connection {
    int64_t received = 0;     // bytes of the running pull's weights
    int64_t reported = 0;     // bytes of them that the server knows of
    int64_t window = 0;       // bytes, of the running pull
    int64_t first_ms = 0;     // when the first message of its answer came,
    int64_t first_bytes = 0;  // and how long that was
    double bytes_per_ms = 0;  // best of the last pulls; 0: not known
  };
  int64_t window_of(const Connection& connection) const;
  static void measure(std::vector<Connection>& connections, int64_t now_ms);

  const int64_t least_bytes_;
  const int64_t most_bytes_;
  std::vector<std::vector<Connection>> connections_;  // by server
};

}  // namespace pushpull
