// One pull on one connection: which slices of it have still to be sent, how many bytes are under
// way, and what a repeated question says about what was lost. One thread.
//
// A repeat comes on the same connection, which keeps the order. So what was sent before the server
// last reported its progress has arrived if the worker has heard that report, and what is missing
// of it is lost. All else may be under way over a slow link, and would only be sent twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/net/message.h"
#include "ps/server/index_set.h"

namespace pushpull {

class PendingPull {
 public:
  // A worker may have several connections; each brings every n-th slice of a pull.
  static int connections_of(const wire::Pull& pull) { return std::max(1, pull.lanes()); }

  PendingPull() = default;
  // slices: of the server; the pull's connection brings its part of them.
  //   goes_on: one version is asked for, so a repeat goes on where the first one stands, and the
  //   worker may say what it has received already.
  PendingPull(PeerId peer, const wire::Pull& pull, size_t slices, bool goes_on);

  const PeerId& peer() const { return peer_; }
  const wire::Pull& pull() const { return pull_; }
  // Something has still to be sent.
  bool open() const { return open_; }
  void close() { open_ = false; }
  // The slice at this place in the shard has still to be sent.
  bool wants(size_t place) const { return unsent_.contains(place); }
  bool all_sent() const { return unsent_.empty(); }
  // Nothing more may be queued: enough bytes are under way.
  bool window_is_full() const {
    return pull_.window_bytes() > 0 && sent_bytes_ - received_bytes_ >= pull_.window_bytes();
  }
  void on_sent(size_t place, int64_t bytes);
  // The worker has received so much since the pull began.
  void on_received(int64_t bytes);
  // The same pull, repeated on the same connection.
  //   slices: of this server, ascending; servers: that share the slices of the job.
  void repeat(const wire::Pull& pull, const std::vector<int>& slices, int servers);
  // The worker is told how far this is: see above.
  void on_progress_told(size_t slices);

 private:
  // visit(place) for all slices of this connection.
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
  int64_t sent_bytes_ = 0;      // of weights, since it came
  int64_t received_bytes_ = 0;  // of these, as far as the worker has said
  IndexSet settled_;            // slices sent before the last report: they came or are lost
  int told_ = 0;                // Pull.asked of that report; 0 once the worker has heard it
  int64_t sent_when_told_ = 0;  // sent_bytes_ at that report
};

}  // namespace pushpull
