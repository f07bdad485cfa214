// The connections of a simulated worker to the other workers of its group, on the simulated network: a router,
// and a dealer to each member.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "tests/simulation/cluster.h"
#include "worker/group/group_links.h"

namespace pushpull::sim {

class WorkerNode;

// Messages of other workers that have arrived at a process.
using PeerInbox = std::deque<Message>;

class WorkerGroup final : public GroupLinks {
 public:
  // Borrows all references.
  WorkerGroup(Cluster& cluster, WorkerNode& process, PeerInbox& inbox, const GroupSetup& setup);

  void begin(int64_t attempt, std::vector<GroupMember> members) override;
  void end() override;
  void exchange(const std::optional<GroupParts::Wait>& wait) override;
  GroupParts& parts() override { return parts_; }

  // ---- events ----
  // Sends nothing to other workers until then.
  void silence(int64_t until_ms);
  // Call when the process has ended, or the trainer.
  void close();

 private:
  struct Peer {
    GroupMember who;
    int dealer = -1;  // of this worker itself: none
  };
  bool of_term(const wire::Header& header) const;
  void send();

  Cluster& cluster_;
  WorkerNode& process_;
  PeerInbox& inbox_;
  const uint64_t term_id_;
  GroupParts parts_;
  std::vector<Peer> peers_;  // by stage
  int64_t silent_until_ms_ = 0;
};

}  // namespace pushpull::sim
