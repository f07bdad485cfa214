// backup:B (Chen et al., Revisiting Distributed Synchronous SGD, arXiv 1604.00981): a step takes
// the pushes of all shares but B. State machines without socket, clock or weights. One thread.
//
//   BackupSet     at each server: the pushes of the running step that are complete there, and which
//                 of them the step takes.
//   BackupChoice  at the coordinator: fixes that set, one for all servers.
//
// Only a push that is complete at every server can be chosen. So a worker that dies when it has
// reached some servers is not in the set at all, or wholly.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/net/message.h"
#include "ps/aggregation/received_push.h"

namespace pushpull {

class BackupSet {
 public:
  // The pushes of a step that is done, ascending by share.
  struct Done {
    std::vector<ReceivedPush> counted;
    std::vector<ReceivedPush> dropped;
  };

  // A push of the running step is complete. False: this share's is here already.
  bool add(ReceivedPush&& push);
  // First micro-batches of the shares that are complete.
  std::vector<int64_t> complete() const;
  // Fixes the set. False, and nothing happens, when it is fixed, empty, or one of it is not here.
  bool choose(const std::set<int64_t>& lo);
  bool decided() const { return !chosen_.empty(); }
  // The share's push is in the running step's set, or in that of the step before.
  bool has_taken(int64_t lo) const { return chosen_.contains(lo); }
  bool had_taken(int64_t lo) const { return before_.contains(lo); }

  // Once decided. Part i of the n that were chosen, ascending by share, is leaf i of the tree.
  const std::vector<PartialSum>& parts(int slice) const { return parts_.at(slice); }
  int64_t pushes() const { return static_cast<int64_t>(chosen_.size()); }
  int64_t micro_batches() const;
  // visit(part) for all that wait.
  template <class Visit>
  void for_parts(const Visit& visit) {
    for (auto& [lo, push] : pushes_) {
      for (auto& [slice, part] : push.parts) visit(part);
    }
    for (auto& [slice, parts] : parts_) {
      for (PartialSum& part : parts) visit(part);
    }
  }
  // The step is done: the next one's begins empty.
  Done take();

 private:
  std::map<int64_t, ReceivedPush> pushes_;  // by first micro-batch
  std::set<int64_t> chosen_;
  std::set<int64_t> before_;
  std::map<int, std::vector<PartialSum>> parts_;
};

class BackupChoice {
 public:
  // servers: that hold slices. wanted: pushes of a step, shares less B.
  BackupChoice(int servers, int wanted) : servers_(servers), wanted_(wanted) {}

  // Takes the complete pushes of a server's running step. Fixes the set when `wanted` pushes are
  // complete at all servers, in the order in which they became so. True: `chosen` answers this
  // server, or, when `fixed_now`, all of them.
  bool take(const wire::Arrived& arrived);
  bool fixed_now() const { return fixed_now_; }
  const std::optional<wire::Chosen>& chosen() const { return chosen_; }

 private:
  int servers_;
  int wanted_;
  int64_t step_ = -1;
  std::map<uint64_t, std::set<int64_t>> complete_;  // by server
  std::vector<int64_t> order_;                      // complete at all of them
  bool fixed_now_ = false;
  std::optional<wire::Chosen> chosen_;
};

}  // namespace pushpull
