// A worker's connections to the other workers of its group, as its trainer uses them: moves messages between
// GroupParts and the members. SocketGroup implements it over ZeroMQ; the simulation has another one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/buffer_pool.h"
#include "worker/group/group_parts.h"

namespace pushpull {

// Used by the trainer's thread.
class GroupLinks {
 public:
  virtual ~GroupLinks() = default;

  // Begins an attempt of a group: GroupParts::begin, and connects to its members.
  virtual void begin(int64_t attempt, std::vector<GroupMember> members) = 0;
  // Leaves the group: GroupParts::end, and closes the connections.
  virtual void end() = 0;
  // Receives messages, and sends GroupParts' outgoing ones.
  //   wait: see GroupParts::on_tick. Throws as that.
  virtual void exchange(const std::optional<GroupParts::Wait>& wait = {}) = 0;
  virtual GroupParts& parts() = 0;
  // Allocates floats that are sent. Any thread may call the allocator.
  virtual FloatAllocator memory() { return heap_floats; }
};

}  // namespace pushpull
