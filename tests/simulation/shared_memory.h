// Memory that two simulated processes share. A payload in it goes to the peer as a reference that
// keeps the pages but not their contents: a sender that releases a buffer too early is detected,
// since poisoned_pool.cpp spoils it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "common/base/buffer_pool.h"
#include "common/net/message.h"
#include "ps/server/server.h"

namespace pushpull::sim {

// Buffers of one process that others map, like SegmentPool and `refer` of common/shm.
class SharedMemory {
 public:
  // The allocator must not outlive this object.
  FloatAllocator allocator();
  // Sends payloads in these buffers as references and copies all others. Returns the number of
  // references.
  int64_t refer(Message& message) const;

 private:
  struct Buffer {
    size_t bytes = 0;
    std::weak_ptr<float[]> pages;
  };
  std::map<const std::byte*, Buffer> buffers_;
};

// Copies payloads, as a connection does.
void copy_payloads(Message& message);

// The server's side, like AttachedWorkers: a pull with in_place gets weights by reference.
class ServerPages {
 public:
  FloatAllocator allocator() { return memory_.allocator(); }
  void on_message(const PeerId& peer, const Message& message);
  // Returns the number of references.
  int64_t on_send(Outgoing& out) const;

 private:
  struct Worker {
    int64_t pull = 0;  // number of the newest pull
    bool in_place = false;
  };
  SharedMemory memory_;
  std::map<uint64_t, Worker> workers_;  // by incarnation
  std::map<PeerId, uint64_t> peers_;
};

}  // namespace pushpull::sim
