// One pull on one connection: the slices that are not sent yet, the bytes in flight, and the slices
// that a repeated pull shows to be lost. Not thread-safe.
//
// A repeated pull uses the same connection, which keeps the order. If the worker has received the
// server's last progress report, then all slices sent before that report have arrived or are lost.
// All other slices may be in flight over a slow link and are not sent twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/net/message.h"
#include "ps/server/index_set.h"

namespace pushpull {

class PendingPull {
 public:
  // The number of connections of the worker; each carries every n-th slice of the pull.
  static int connections_of(const wire::Pull& pull) { return std::max(1, pull.lanes()); }

  PendingPull() = default;
  // slices: of the server; this connection carries its part of them.
  //   one_version: as the pull asks; a repeated pull then continues the first one, and the
  //   worker may report bytes that it has received.
  PendingPull(PeerId peer, const wire::Pull& pull, size_t slices, bool one_version);

  const PeerId& peer() const { return peer_; }
  const wire::Pull& pull() const { return pull_; }
  // Returns true if slices must be sent.
  bool open() const { return open_; }
  void close() { open_ = false; }
  // Returns true if the slice at this place in the shard must be sent.
  bool wants(size_t place) const { return unsent_.contains(place); }
  bool all_sent() const { return unsent_.empty(); }
  // Returns true if no more may be queued: enough bytes are in flight.
  bool window_is_full() const {
    return pull_.window_bytes() > 0 && sent_bytes_ - received_bytes_ >= pull_.window_bytes();
  }
  void on_sent(size_t place, int64_t bytes);
  // Records the bytes that the worker has received since the pull began.
  void on_received(int64_t bytes);
  // Handles a repetition of the pull on the same connection.
  //   slices: of this server, ascending. servers: of the job.
  void repeat(const wire::Pull& pull, const std::vector<int>& slices, int servers);
  // Records a progress report to the worker: see above.
  void on_progress_report(size_t slices);

 private:
  // Calls visit(place) for all slices of this connection.
  template <class Visit>
  void for_places(size_t slices, const Visit& visit) const {
    for (auto i = static_cast<size_t>(pull_.lane()); i < slices;
         i += static_cast<size_t>(connections_of(pull_))) {
      visit(i);
    }
  }

  PeerId peer_;
  wire::Pull pull_;
  IndexSet unsent_;  // by place in the shard
  bool open_ = false;
  int64_t sent_bytes_ = 0;      // of weights, since the pull began
  int64_t received_bytes_ = 0;  // of these; reported by the worker
  IndexSet settled_;            // slices sent before the last report: arrived or lost
  int report_ = 0;              // Pull.asked of that report; 0 once the worker has received it
  int64_t sent_at_report_ = 0;  // sent_bytes_ at that report
};

}  // namespace pushpull
