// The memory that the workers of a group share if they are on one host: translates between GroupParts, whose
// messages have payloads, and connections on which large parts are references to the sender's memory. The
// receiver copies a part when its message arrives, so the sender may reuse the memory once the part counts as
// arrived. Uses no socket. Used by the trainer's thread.
//
// Each START offers a piece of memory to try. The messages of a member that can map it say so (`maps`), and
// parts to it are references from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/base/console.h"
#include "common/shm/references.h"
#include "worker/group/group_parts.h"

namespace pushpull {

class GroupMemory {
 public:
  GroupMemory(const Job& job, int64_t max_part_bytes);

  // Returns true if members may read this worker's memory.
  bool lends() const { return probe_ != nullptr; }
  // Allocates parts that members can read. Any thread may call the allocator; it may outlive this object.
  FloatAllocator allocator() const;

  // See GroupParts::begin.
  //   stage: of this worker.
  void begin(int64_t attempt, std::vector<GroupMember> members, int stage);
  // Replaces the payload by a reference if the receiver maps this worker's memory.
  void on_send(ToMember& out) const;
  // Replaces a reference by a copy of what it refers to. Returns false if the message was refused.
  bool on_message(Message& message);
  // Messages that were refused.
  int64_t rejected() const { return rejected_; }

  // A smaller part is sent as it is. Measured over loopback: equal at 64 KiB, half of the time from 256 KiB on.
  static constexpr size_t kLeastBytes = size_t{128} << 10;

 private:
  struct Member {
    GroupMember who;
    bool maps = false;                 // this worker's memory
    std::optional<PeerMemory> memory;  // of it
  };
  void attach(Member& member, const wire::StagePart& start) const;
  void fetch(Member& member, Message& message);
  Payload copy(std::span<const std::byte> bytes);
  void give_up(Member& member, const std::string& why) const;

  const bool wanted_;  // transport = shm: warn if memory is not shared
  const int64_t max_part_bytes_;
  Log log_{"worker"};
  std::shared_ptr<SegmentPool> pool_;  // null if the job does not share memory
  std::shared_ptr<float[]> probe_;     // null if members cannot read this worker's memory
  int64_t attempt_ = 0;
  std::vector<Member> members_;          // by stage
  std::map<size_t, BufferPool> copies_;  // of parts, by their floats
  int64_t rejected_ = 0;
};

}  // namespace pushpull
