// Copies on the host of what a server keeps on a device, for all who cannot read it there: one of
// each generation of weights and each state vector that somebody wants, made slice by slice, each
// slice once. A copy lies as its original does, and lasts as long as that or as its readers,
// whichever is longer. One thread, which is the device's.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/device/device.h"
#include "common/net/message.h"

namespace pushpull {

class HostMirror {
 public:
  // memory: where copies lie; what is registered with the device is faster.
  // floats: of a generation.
  HostMirror(std::shared_ptr<device::Device> device, FloatAllocator memory, size_t floats);

  // Puts the bytes of all payloads on the device into host memory. The owner of each begins where
  // its generation does, and what has been copied of that does not change any more. Throws
  // Error(kDevice).
  void bring(std::vector<Payload>& payloads);

  // Copies whose source is still alive.
  size_t copies() const { return copies_.size(); }

 private:
  struct Copy {
    std::weak_ptr<const void> of;
    std::shared_ptr<float[]> floats;
    std::set<size_t> here;  // offsets of slices, in bytes
  };
  Copy& copy_of(const std::shared_ptr<const void>& generation);
  Payload on_host(const Payload& there);

  std::shared_ptr<device::Device> device_;
  BufferPool pool_;
  std::vector<Copy> copies_;
  std::unique_ptr<device::Stream> stream_;
  bool copying_ = false;
};

}  // namespace pushpull
