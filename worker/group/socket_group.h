// The connections of a worker to the other workers of its group, over ZeroMQ: one Router for incoming
// messages and one Dealer to each member. Used by the trainer's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>
#include <zmq.hpp>

#include "common/base/console.h"
#include "common/base/process.h"
#include "common/net/endpoint.h"
#include "worker/group/group_links.h"
#include "worker/group/group_memory.h"
#include "worker/group/peer_dealers.h"

namespace pushpull {

class SocketGroup final : public GroupLinks {
 public:
  // router: bound to the address that the members know, with data_limits(setup.max_part_bytes).
  // credentials: of this worker.
  SocketGroup(const Job& job, zmq::context_t& context, std::unique_ptr<Router> router,
              const GroupSetup& setup, Credentials credentials);

  void begin(int64_t attempt, std::vector<GroupMember> members) override;
  void end() override;
  void exchange(const std::optional<GroupParts::Wait>& wait = {}) override;
  GroupParts& parts() override { return parts_; }
  FloatAllocator memory() override { return memory_.allocator(); }

  // Adds the sockets on which messages arrive, for a wait between two calls of `exchange`.
  void add_poll_items(std::vector<zmq::pollitem_t>& items);
  // Messages that were refused, those that could not be decoded included.
  int64_t rejected() const {
    return parts_.rejected() + memory_.rejected() + router_->rejected_frames();
  }

 private:
  void send();

  GroupMemory memory_;
  GroupParts parts_;
  const std::unique_ptr<Router> router_;
  PeerDealers dealers_;
  AwakeClock clock_;
  Log log_{"worker"};
};

}  // namespace pushpull
