#include "ps/engine/host_mirror.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

namespace {

constexpr int64_t kMirrorDeadlineMs = 60'000;

}  // namespace

HostMirror::HostMirror(std::shared_ptr<device::Device> device, FloatAllocator memory, size_t floats)
    : device_(std::move(device)), pool_(floats, std::move(memory)), stream_(device_->stream()) {}

HostMirror::Copy& HostMirror::copy_of(const std::shared_ptr<const void>& generation) {
  const auto found = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& copy) {
    return !copy.of.owner_before(generation) && !generation.owner_before(copy.of);
  });
  if (found != copies_.end()) return *found;
  // Copies without readers go back to the pool first.
  std::erase_if(copies_, [](const Copy& copy) { return copy.of.expired(); });
  copies_.push_back({generation, pool_.get(), {}});
  return copies_.back();
}

// The contents are there once stream_ is synchronized.
Payload HostMirror::on_host(const Payload& there) {
  Copy& copy = copy_of(there.owner);
  const auto* first = static_cast<const std::byte*>(there.owner.get());
  const auto offset = static_cast<size_t>(there.bytes.data() - first);
  PP_ASSERT(there.bytes.data() >= first &&
            offset + there.bytes.size() <= pool_.floats() * sizeof(float));
  float* to = copy.floats.get() + offset / sizeof(float);
  if (copy.here.insert(offset).second) {
    stream_->copy_out(there.bytes.data(), there.bytes.size(), to);
    copying_ = true;
  }
  return {copy.floats, std::as_bytes(std::span(to, there.float_count()))};
}

void HostMirror::bring(std::vector<Payload>& payloads) {
  std::vector<Payload> there;  // keeps the sources until they are copied
  for (Payload& payload : payloads) {
    if (!payload.on_device) continue;
    Payload here = on_host(payload);
    there.push_back(std::exchange(payload, std::move(here)));
  }
  if (std::exchange(copying_, false)) stream_->synchronize(kMirrorDeadlineMs);
}

}  // namespace pushpull
