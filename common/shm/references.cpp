#include "common/shm/references.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "common/layout/slice_map.h"

namespace pushpull {

namespace {

constexpr int64_t kAlignment = 64;
constexpr size_t kMaxHandle = 256;

size_t slice_bytes(const SliceMap& map, int slice) {
  if (slice < 0 || slice >= map.slices()) return 0;
  return static_cast<size_t>(map.elements(slice).size()) * sizeof(float);
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kProtocol, "[shm] " + why);
}

// Buffers of this process that a peer can map.
struct Pools {
  const SegmentPool& host;
  const DevicePool* device = nullptr;

  SegmentIndex::Place find(const Payload& payload) const {
    if (!payload.on_device) return host.find(payload.bytes);
    return device == nullptr ? SegmentIndex::Place() : device->find(payload.bytes);
  }
};

// Finds the payload's segment: usually that of the previous slice, which needs no lock. (Device and
// host addresses are distinct.)
SegmentIndex::Place place_of(const Payload& payload, const Pools& pools,
                             const std::vector<std::shared_ptr<const SharedMemory>>& named) {
  const std::span<const std::byte> bytes = payload.bytes;
  for (const std::shared_ptr<const SharedMemory>& segment : named) {
    const std::byte* start = segment->data();
    const bool inside = std::less_equal<>()(start, bytes.data()) &&
                        std::less_equal<>()(bytes.data() + bytes.size(), start + segment->bytes());
    if (inside) return {segment, bytes.data() - start};
  }
  return pools.find(payload);
}

// entries: of type Part or SliceVersion, one for each payload.
template <class Entries, class Segments>
void refer_entries(Entries* entries, Segments* segments, std::vector<Payload>& payloads,
                   const Pools& pools, const SliceMap& map) {
  PP_ASSERT(static_cast<size_t>(entries->size()) == payloads.size());
  std::vector<std::shared_ptr<const SharedMemory>> named;
  std::vector<Payload> rest;
  for (int i = 0; i < entries->size(); ++i) {
    auto& entry = *entries->Mutable(i);
    Payload& payload = payloads[static_cast<size_t>(i)];
    SegmentIndex::Place place;
    if (payload.bytes.size() == slice_bytes(map, entry.slice())) {
      place = place_of(payload, pools, named);
    }
    if (!place.segment || place.offset % kAlignment != 0) {
      rest.push_back(std::move(payload));
      continue;
    }
    auto known = std::find(named.begin(), named.end(), place.segment);
    if (known == named.end()) {
      *segments->Add() = place.segment->description();
      known = named.insert(named.end(), std::move(place.segment));
    }
    entry.set_segment(static_cast<int32_t>(known - named.begin()) + 1);
    entry.set_offset(place.offset);
  }
  payloads = std::move(rest);
}

template <class Entries, class Segments>
void resolve_entries(Entries* entries, Segments* segments, std::vector<Payload>& payloads,
                     PeerMemory& memory, const SliceMap& map) {
  std::vector<Payload> mapped(static_cast<size_t>(segments->size()));
  std::vector<Payload> all;
  size_t next = 0;
  for (auto& entry : *entries) {
    if (entry.segment() == 0) {
      if (next == payloads.size()) refuse("a payload is missing");
      all.push_back(std::move(payloads[next++]));
      continue;
    }
    const size_t bytes = slice_bytes(map, entry.slice());
    if (bytes == 0) refuse("there is no slice " + std::to_string(entry.slice()));
    if (entry.segment() < 0 || entry.segment() > segments->size()) {
      refuse("there is no segment " + std::to_string(entry.segment()) + " of " +
             std::to_string(segments->size()));
    }
    const int index = entry.segment() - 1;
    Payload& segment = mapped[static_cast<size_t>(index)];
    if (!segment.owner) segment = memory.map(segments->Get(index));
    const std::span<const std::byte> whole = segment.bytes;
    const auto offset = static_cast<size_t>(entry.offset());
    if (entry.offset() < 0 || entry.offset() % kAlignment != 0 || offset > whole.size() ||
        bytes > whole.size() - offset) {
      refuse("slice " + std::to_string(entry.slice()) + " at offset " +
             std::to_string(entry.offset()) + " does not lie in a segment of " +
             std::to_string(whole.size()) + " bytes");
    }
    all.push_back({segment.owner, whole.subspan(offset, bytes), segment.on_device});
    entry.clear_segment();
    entry.clear_offset();
  }
  if (next != payloads.size()) refuse("more payloads than parts");
  segments->Clear();
  payloads = std::move(all);
}

template <class Entries>
bool refers(const Entries& entries) {
  return std::any_of(entries.begin(), entries.end(),
                     [](const auto& entry) { return entry.segment() != 0; });
}

}  // namespace

bool workers_share_memory(const Job& job) {
  return job.transport == Transport::kAuto || job.transport == Transport::kShm;
}

bool shares_memory(const Job& job) {
  return !job.strategy.traits().workers_update && workers_share_memory(job);
}

Payload PeerMemory::map(const wire::Segment& segment) {
  const auto same = [&](const auto& known) {
    const wire::Segment& other = known.first;
    return other.token() == segment.token() && other.pid() == segment.pid() &&
           other.fd() == segment.fd() && other.bytes() == segment.bytes() &&
           other.device() == segment.device() && other.handle() == segment.handle();
  };
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), same);
  if (found != mappings_.end()) {
    std::rotate(mappings_.begin(), found, found + 1);
    return mappings_.front().second;
  }
  mappings_.emplace_front(segment, open(segment));
  if (mappings_.size() > kMaxMappings) mappings_.pop_back();
  return mappings_.front().second;
}

Payload PeerMemory::open(const wire::Segment& segment) const {
  if (segment.device().empty() && segment.handle().empty()) {
    auto mapping = std::make_shared<const Mapping>(segment, max_bytes_, mapped_);
    const std::span<const std::byte> bytes = mapping->bytes();
    return {std::move(mapping), bytes};
  }
  if (segment.device().empty() || segment.pid() != 0 || segment.fd() != 0) {
    refuse("a segment names a device's memory and a file");
  }
  if (!device_) refuse("device memory was sent to a process that cannot map any");
  if (segment.device() != device_->id()) {
    refuse("memory of another device was sent to a process that computes on " + device_->name());
  }
  if (segment.bytes() <= 0 || segment.bytes() > max_bytes_) {
    refuse("memory of " + device_->name() + " has " + std::to_string(segment.bytes()) +
           " bytes, at most " + std::to_string(max_bytes_) + " are expected");
  }
  if (segment.token().size() != Segment::kTokenBytes || segment.handle().size() > kMaxHandle) {
    refuse("memory of " + device_->name() + " came with a token of " +
           std::to_string(segment.token().size()) + " bytes and a handle of " +
           std::to_string(segment.handle().size()));
  }
  const auto bytes = static_cast<size_t>(segment.bytes());
  std::shared_ptr<const void> opened = device_->open_shared(segment.handle(), bytes);
  const auto* first = static_cast<const std::byte*>(opened.get());
  return {std::move(opened), {first, bytes}, true};
}

int64_t max_segment_bytes(const SliceMap& map) {
  constexpr int64_t kSlack = int64_t{1} << 20;
  return 2 * map.total() * static_cast<int64_t>(sizeof(float)) + kSlack;
}

void refer(Message& message, const SegmentPool& pool, const SliceMap& map,
           const DevicePool* device_pool) {
  const Pools pools{pool, device_pool};
  if (message.header.has_exchange()) {
    wire::Exchange* exchange = message.header.mutable_exchange();
    if (!exchange->has_push()) return;
    refer_entries(exchange->mutable_push()->mutable_parts(), exchange->mutable_segments(),
                  message.payloads, pools, map);
  } else if (message.header.has_weights()) {
    wire::Weights* weights = message.header.mutable_weights();
    refer_entries(weights->mutable_slices(), weights->mutable_segments(), message.payloads, pools,
                  map);
  }
}

void resolve(Message& message, PeerMemory& memory, const SliceMap& map) {
  if (message.header.has_exchange()) {
    wire::Exchange* exchange = message.header.mutable_exchange();
    if (!exchange->has_push()) return;
    resolve_entries(exchange->mutable_push()->mutable_parts(), exchange->mutable_segments(),
                    message.payloads, memory, map);
  } else if (message.header.has_weights()) {
    wire::Weights* weights = message.header.mutable_weights();
    resolve_entries(weights->mutable_slices(), weights->mutable_segments(), message.payloads,
                    memory, map);
  }
}

bool has_references(const wire::Header& header) {
  if (header.has_exchange()) return refers(header.exchange().push().parts());
  return header.has_weights() && refers(header.weights().slices());
}

}  // namespace pushpull
