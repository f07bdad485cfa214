// Memory that two simulated processes share: what lies in it goes to the peer as a reference, which
// keeps the pages but not what stands in them. So a sender that lets go too early is found out:
// poisoned_pool.cpp spoils what is given back.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "common/base/buffer_pool.h"
#include "common/net/message.h"
#include "ps/server/server.h"

namespace pushpull::sim {

// Buffers of one process that others map. As SegmentPool and `refer` of common/shm do it.
class SharedMemory {
 public:
  // Must not outlive this.
  FloatAllocator allocator();
  // What lies in buffers of ours goes as references, all else is copied. Returns the references.
  int64_t refer(Message& message) const;

 private:
  struct Buffer {
    size_t bytes = 0;
    std::weak_ptr<float[]> pages;
  };
  std::map<const std::byte*, Buffer> buffers_;
};

// As a connection does it.
void copy_payloads(Message& message);

// The server's side, as AttachedWorkers does it: weights go by reference to whose pull says in_place.
class ServerPages {
 public:
  FloatAllocator allocator() { return memory_.allocator(); }
  void on_message(const PeerId& peer, const Message& message);
  // Returns the references.
  int64_t on_send(Outgoing& out) const;

 private:
  struct Worker {
    int64_t pull = 0;  // newest
    bool in_place = false;
  };
  SharedMemory memory_;
  std::map<uint64_t, Worker> workers_;  // by incarnation
  std::map<PeerId, uint64_t> peers_;
};

}  // namespace pushpull::sim
