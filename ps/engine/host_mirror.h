// Host copies of a server's vectors on a device, for readers that cannot access the device: one
// copy for each generation of weights and each state vector that is read. Slices are copied when
// they are first read. A copy has the layout of its original. It lives until the original and all
// its readers are gone. Used by the device's thread.
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
  //   memory: allocates the copies; faster if registered with the device.
  //   floats: in a generation.
  HostMirror(std::shared_ptr<device::Device> device, FloatAllocator memory, size_t floats);

  // Replaces the payloads that are on the device by host copies. Each payload's owner must be the
  // start of its generation, and copied contents must not change any more. Throws Error(kDevice).
  void bring(std::vector<Payload>& payloads);

  // The number of copies with a source that is still alive.
  size_t copies() const { return copies_.size(); }

 private:
  struct Copy {
    std::weak_ptr<const void> of;
    std::shared_ptr<float[]> floats;
    std::set<size_t> here;  // offsets of the copied slices, in bytes
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
