// The pushes of all workers on their way into a server: checks each message, puts the messages of a
// push together, hands every part once and every whole push once to the rule. Knows who has pushed
// what, so that pushes can be acknowledged. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "common/job/barriers.h"
#include "common/net/message.h"
#include "common/net/refusal.h"
#include "ps/aggregation/aggregation.h"
#include "ps/aggregation/received_push.h"
#include "ps/engine/shard.h"
#include "ps/server/grants.h"
#include "ps/server/index_set.h"
#include "ps/server/push_tracker.h"

namespace pushpull {

class PushIntake {
 public:
  // shares: that a step is cut into. micro_batches: of a step. grants: of the run. All else is
  // borrowed.
  PushIntake(int shares, int64_t micro_batches, Grants grants, const Barriers& barriers,
             const Shard& shard, Aggregation& aggregation);

  // Takes in from which steps on shares are others. No push of these has been taken.
  void on_cuts(const wire::State& state);
  // Only these workers may push from now on: rank by incarnation.
  void on_members(const std::map<uint64_t, int>& members);

  // The worker is a member; the same for `take`.
  Checked check(uint64_t incarnation, const wire::Push& push,
                const std::vector<Payload>& payloads) const;
  // A message of a push that fits. Moves the payloads that have not come before.
  void take(uint64_t incarnation, const wire::Push& push, std::vector<Payload>& payloads);

  bool complete(uint64_t incarnation, int64_t number) const {
    return workers_.at(incarnation).pushes.complete(number);
  }
  // All pushes of the worker up to this number are complete.
  int64_t through(uint64_t incarnation) const { return workers_.at(incarnation).pushes.through(); }
  // visit(part) for all parts of pushes that are not complete.
  void for_waiting(const std::function<void(PartialSum&)>& visit);
  // Payload bytes taken in.
  int64_t bytes() const { return bytes_; }

 private:
  struct Assembly {
    ReceivedPush push;
    IndexSet seen;  // parts that have come, by slice and place in the share
  };
  struct Worker {
    int rank = -1;
    PushTracker pushes;
    std::map<int64_t, Assembly> open;  // by push number
  };
  // A share, and the nodes that a push of it brings for each slice.
  struct Share {
    Range range;
    std::vector<Range> nodes;
  };

  // The shares of all steps from this one on, up to the next cut's.
  struct Cut {
    int64_t from_step = 0;
    std::vector<Share> shares;
  };

  void add_cut(int64_t from_step, int shares);
  const std::vector<Share>& shares_at(int64_t step) const;
  const Share* share_of(const wire::Push& push) const;
  Checked check_place(const Worker& worker, const wire::Push& push) const;
  Checked check_grant(uint64_t incarnation, const wire::Push& push) const;
  Checked check_lists(const wire::Push& push, const std::vector<Payload>& payloads) const;
  Checked check_part(const Share& share, const wire::Part& part, const Payload& payload) const;
  // Index of a slice among those of this server.
  size_t place(int slice) const { return shard_.place(slice); }

  const int64_t micro_batches_;
  std::vector<Cut> cuts_;  // by their first step
  const Grants grants_;
  const Barriers& barriers_;
  const Shard& shard_;
  Aggregation& aggregation_;
  std::map<uint64_t, Worker> workers_;  // by incarnation
  int64_t bytes_ = 0;
};

}  // namespace pushpull
