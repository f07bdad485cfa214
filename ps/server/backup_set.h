// backup:B (Chen et al., Revisiting Distributed Synchronous SGD, arXiv 1604.00981): a step takes
// the pushes of all shares but B. State machines without I/O or weights. Not thread-safe.
//
//   BackupSet     at each server: the pushes of the running step that are complete there, and which
//                 of them the step takes.
//   BackupChoice  at the coordinator: fixes that set, one for all servers.
//
// Only a push that is complete at every server can be chosen. A worker that dies after reaching
// some of the servers is therefore in the set as a whole or not at all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/net/message.h"
#include "ps/server/commit.h"

namespace pushpull {

class BackupSet {
 public:
  // The pushes of a completed step, ascending by share.
  struct Done {
    std::vector<ReceivedPush> counted;
    std::vector<ReceivedPush> dropped;
  };

  // Adds a complete push of the running step. Returns false if this share's push has been added
  // already.
  bool add(ReceivedPush&& push);
  // Returns the first micro-batches of the shares with complete pushes.
  std::vector<int64_t> complete() const;
  // Fixes the set. Returns false and does nothing if the set is fixed already, or if `lo` is empty
  // or names a push that is missing.
  bool choose(const std::set<int64_t>& lo);
  bool decided() const { return !chosen_.empty(); }
  // Return true if the share's push is in the set of the running step, or of the previous step.
  bool has_taken(int64_t lo) const { return chosen_.contains(lo); }
  bool had_taken(int64_t lo) const { return before_.contains(lo); }

  // Valid once decided. Part i of the chosen pushes, ascending by share, is leaf i of the tree.
  const std::vector<PartialSum>& parts(int slice) const { return parts_.at(slice); }
  int64_t pushes() const { return static_cast<int64_t>(chosen_.size()); }
  int64_t micro_batches() const;
  // The rate that the worker of the first one has said.
  std::optional<double> learning_rate() const { return pushes_.at(*chosen_.begin()).learning_rate; }
  // Calls visit(part) for all waiting parts.
  template <class Visit>
  void for_parts(const Visit& visit) {
    for (auto& [lo, push] : pushes_) {
      for (auto& [slice, part] : push.parts) visit(part);
    }
    for (auto& [slice, parts] : parts_) {
      for (PartialSum& part : parts) visit(part);
    }
  }
  // Ends the step; the next one begins empty.
  Done take();

 private:
  std::map<int64_t, ReceivedPush> pushes_;  // by first micro-batch
  std::set<int64_t> chosen_;
  std::set<int64_t> before_;
  std::map<int, std::vector<PartialSum>> parts_;
};

class BackupChoice {
 public:
  //   servers: servers with slices. wanted: pushes per step, which is shares minus B.
  BackupChoice(int servers, int wanted) : servers_(servers), wanted_(wanted) {}

  // Takes the complete pushes of a server's running step. Fixes the set when `wanted` pushes are
  // complete at all servers, in the order in which they became complete. Returns true if `chosen`
  // is the answer: to all servers if `fixed_now`, otherwise to this one.
  bool take(const wire::Arrived& arrived);
  bool fixed_now() const { return fixed_now_; }
  const std::optional<wire::Chosen>& chosen() const { return chosen_; }

 private:
  int servers_;
  int wanted_;
  int64_t step_ = -1;
  std::map<uint64_t, std::set<int64_t>> complete_;  // by server
  std::vector<int64_t> order_;                      // complete at all servers
  bool fixed_now_ = false;
  std::optional<wire::Chosen> chosen_;
};

}  // namespace pushpull
