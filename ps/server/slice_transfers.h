// Transfers whole slices beside training: initial weights (Load), snapshots (Fetch), and weights
// that workers store at checkpoints (Store). Checks each message against the slices of this server.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "common/net/message.h"
#include "common/net/refusals.h"
#include "ps/server/outgoing.h"

namespace pushpull {

class Aggregation;
class BarrierGate;
class Shard;

class SliceTransfers {
 public:
  // load: initial weights arrive by Load; the server is not ready until it has them.
  // updates: update count of these weights. Borrows all references.
  SliceTransfers(bool load, int64_t updates, Shard& shard, BarrierGate& gate,
                 Aggregation& aggregation);

  // Returns true if all slices have their initial weights.
  bool ready() const { return to_load_.empty(); }

  // Answer a message of a member of this run, or return the reason of its refusal.
  Checked load(const PeerId& peer, const wire::Load& load, const std::vector<Payload>& payloads,
               Outbox& outbox);
  Checked fetch(const PeerId& peer, const wire::Fetch& fetch, Outbox& outbox) const;
  // The caller must have checked that the sender keeps this slice.
  Checked store(const PeerId& peer, const wire::Store& store, const std::vector<Payload>& payloads,
                Outbox& outbox);

 private:
  Checked check_slice(int slice) const;
  Checked check_sizes(int slice, const std::vector<Payload>& payloads, size_t least) const;
  Checked fetch_start(const PeerId& peer, const wire::Fetch& fetch, Outbox& outbox) const;
  void begin();

  const bool load_;
  const int64_t updates_;
  Shard& shard_;
  BarrierGate& gate_;
  Aggregation& aggregation_;
  std::set<int> to_load_;
};

}  // namespace pushpull
