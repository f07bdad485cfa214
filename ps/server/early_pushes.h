// Pushes of steps that a server in a lost one's place has not come to yet: workers send it what they
// have kept, several steps at a time. They wait here, as whole messages. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "common/net/message.h"

namespace pushpull {

class EarlyPushes {
 public:
  struct Early {
    PeerId peer;
    wire::Exchange exchange;
    std::vector<Payload> payloads;
  };

  // most_bytes: for each worker.
  explicit EarlyPushes(int64_t most_bytes) : most_bytes_(most_bytes) {}

  // False: there is no room, or it waits already. It comes again.
  bool keep(Early early);
  // Those of steps up to `step`, in the order in which they came.
  std::vector<Early> take(int64_t step);
  bool any_of(int64_t step) const { return !waiting_.empty() && waiting_.begin()->first <= step; }

 private:
  const int64_t most_bytes_;
  std::multimap<int64_t, Early> waiting_;  // by step
  std::map<uint64_t, int64_t> bytes_;      // by worker
};

}  // namespace pushpull
