// Between state machines, whose messages have payloads, and a connection whose peer can map our
// memory: payloads that lie in a segment go as references to it, and references come back as
// payloads over the mapped segment. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "common/device/device.h"
#include "common/job/job.h"
#include "common/layout/slice_map.h"
#include "common/net/message.h"
#include "common/shm/device_pool.h"
#include "common/shm/segment_pool.h"

namespace pushpull {

// Servers and workers of one host share memory. In all-reduce servers are not in the path of a
// step.
inline bool shares_memory(const Job& job) {
  return !job.strategy.traits().workers_update &&
         (job.transport == Transport::kAuto || job.transport == Transport::kShm);
}

// The segments of one peer that it has named so far, mapped.
class PeerMemory {
 public:
  // most_bytes: of one segment.
  // device: whose memory it may name too; null: none.
  explicit PeerMemory(int64_t most_bytes, PagesMapped mapped = {},
                      std::shared_ptr<device::Device> device = nullptr)
      : most_bytes_(most_bytes), mapped_(std::move(mapped)), device_(std::move(device)) {}

  // All of the segment. Throws Error(kProtocol) where it cannot be mapped.
  Payload map(const wire::Segment& segment);

  // A peer has a few buffers that it uses again and again. Beyond this many the one that was named
  // least recently is forgotten.
  static constexpr size_t kMostMappings = 64;
  size_t mappings() const { return mappings_.size(); }

 private:
  Payload open(const wire::Segment& segment) const;

  int64_t most_bytes_;
  PagesMapped mapped_;
  std::shared_ptr<device::Device> device_;
  std::deque<std::pair<wire::Segment, Payload>> mappings_;  // newest first
};

// A segment for the parameters that a slice map describes is at most so large: a flat vector, with
// room for what its user puts between slices.
int64_t most_segment_bytes(const SliceMap& map);

// Exchange and Weights: replaces every payload that is a whole slice of floats in a segment of
// `pool` by a reference; one on a device by a reference to `device_pool`, where there is one.
// Whoever owns these payloads must see to it that they stay as they are until the peer has read
// them.
void refer(Message& message, const SegmentPool& pool, const SliceMap& map,
           const DevicePool* device_pool = nullptr);

// Exchange and Weights: replaces every reference by a payload, so that there is one for each part
// or slice; what lies on a device has on_device set. Throws Error(kProtocol) for a reference that
// cannot be.
void resolve(Message& message, PeerMemory& memory, const SliceMap& map);

// Exchange and Weights: some of what it carries is a reference.
bool has_references(const wire::Header& header);

}  // namespace pushpull
