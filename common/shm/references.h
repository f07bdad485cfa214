// Translates between state machines, which exchange messages with payloads, and a connection to a
// peer that can map our memory: payloads in a segment are sent as references, and received
// references become payloads in the mapped segment. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "common/device/device.h"
#include "common/net/message.h"
#include "common/shm/segment.h"

namespace pushpull {

struct Job;
class SliceMap;

// Returns true if the workers of a group on one host share memory.
bool workers_share_memory(const Job& job);
// Returns true if servers and workers on one host share memory. In all-reduce the servers are not
// on a step's path.
bool shares_memory(const Job& job);

// The mapped segments to which one peer has referred.
class PeerMemory {
 public:
  // max_bytes: largest segment to map.
  // device: the peer may refer to its memory; null if there is none.
  explicit PeerMemory(int64_t max_bytes, PagesMapped mapped = {},
                      std::shared_ptr<device::Device> device = nullptr)
      : max_bytes_(max_bytes), mapped_(std::move(mapped)), device_(std::move(device)) {}

  // Maps the whole segment, or returns the existing mapping. Throws Error(kProtocol) if it cannot
  // be mapped.
  Payload map(const wire::Segment& segment);

  // A peer reuses a few buffers. Beyond this many mappings the least recently used one is dropped.
  static constexpr size_t kMaxMappings = 64;
  size_t mappings() const { return mappings_.size(); }

 private:
  Payload open(const wire::Segment& segment) const;

  int64_t max_bytes_;
  PagesMapped mapped_;
  std::shared_ptr<device::Device> device_;
  std::deque<std::pair<wire::Segment, Payload>> mappings_;  // most recently used first
};

// Returns the largest segment that a peer may need for the parameters of `map`: a flat vector, with
// padding between slices.
int64_t max_segment_bytes(const SliceMap& map);

// Replaces payloads of Exchange and Weights by references: every payload that is a whole plain
// slice in a segment of `pool`, or of `device_pool` if given. The owner of these payloads must not
// change them until the peer has read them.
void refer(Message& message, const SegmentPool& pool, const SliceMap& map,
           const DevicePool* device_pool = nullptr);

// Replaces every reference of Exchange and Weights by a payload, so that each part or slice has
// one; on_device is set for device memory. Throws Error(kProtocol) for an invalid reference.
void resolve(Message& message, PeerMemory& memory, const SliceMap& map);

// Returns true if an Exchange or Weights holds a reference.
bool has_references(const wire::Header& header);

}  // namespace pushpull
