// Receives pushes at a server. PushIntake checks each message, assembles the messages of a push,
// and passes each part and each complete push once to the aggregation. In a group of workers that
// divides the model each pushes the slices of its stage; the push is complete when all of them are. PushTracker tracks which
// pushes of a worker are complete; EarlyPushes keeps pushes that a replacement server cannot apply
// yet. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "common/net/refusals.h"
#include "ps/engine/slice_engine.h"
#include "ps/server/commit.h"
#include "ps/server/grants.h"
#include "ps/server/index_set.h"

namespace pushpull {

class Aggregation;
class Shard;
struct Barriers;

// Tracks which pushes of one worker are complete, for acknowledgements. The pushes of a worker are
// numbered 1, 2, ...
class PushTracker {
 public:
  bool complete(int64_t number) const { return number <= through_ || ahead_.contains(number); }
  void mark(int64_t number);
  // Marks the pushes below this number, which do not arrive, as complete.
  void begin_at(int64_t first);
  // All pushes up to this number are complete.
  int64_t through() const { return through_; }

 private:
  int64_t through_ = 0;
  std::set<int64_t> ahead_;
};

// Keeps messages of pushes for later steps at a replacement server: workers send it kept pushes of
// several steps at once.
class EarlyPushes {
 public:
  struct Early {
    PeerId peer;
    wire::Exchange exchange;
    std::vector<Payload> payloads;
    int64_t bytes = 0;  // header and payloads; `keep` counts them
  };

  // max_bytes: for each worker.
  explicit EarlyPushes(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns false if there is no room or the message is kept already; its worker sends it again.
  bool keep(Early early);
  // Takes out the messages of steps up to `step`, in order of arrival.
  std::vector<Early> take(int64_t step);
  bool any_of(int64_t step) const { return !waiting_.empty() && waiting_.begin()->first <= step; }

 private:
  const int64_t max_bytes_;
  std::multimap<int64_t, Early> waiting_;  // by step
  std::map<uint64_t, int64_t> bytes_;      // by worker
};

class PushIntake {
 public:
  struct Division {
    int shares = 1;             // of a step
    int64_t micro_batches = 1;  // of a step
    // The run is recorded: every stage of a group names what it has read, also those without slices here.
    bool records = false;
  };
  // grants: of the run. Borrows all references.
  PushIntake(const Division& division, Grants grants, const Barriers& barriers, const Shard& shard,
             Aggregation& aggregation);

  // Handles the steps at which the shares change. No push of these steps may have been taken yet.
  void on_cuts(const wire::State& state);
  // Sets the workers that may push from now on: rank by incarnation.
  void on_members(const std::map<uint64_t, int>& members);

  // Checks what does not depend on earlier messages: the step and the grant. A server that keeps a
  // push for a later step calls this before it keeps the message, and `check` when the step begins.
  Checked check_early(uint64_t incarnation, const wire::Push& push) const;
  // Returns the reason if the message must be dropped; includes check_early. The worker must be a
  // member; also for `take`.
  Checked check(uint64_t incarnation, const wire::Push& push,
                const std::vector<Payload>& payloads) const;
  // Takes a message that `check` has accepted. Moves the payloads of parts that have not arrived
  // before.
  void take(uint64_t incarnation, const wire::Push& push, std::vector<Payload>& payloads);

  bool complete(uint64_t incarnation, int64_t number) const {
    return workers_.at(incarnation).pushes.complete(number);
  }
  // All pushes of the worker up to this number are complete.
  int64_t through(uint64_t incarnation) const { return workers_.at(incarnation).pushes.through(); }
  // Calls visit(part) for all parts of incomplete pushes.
  void for_waiting(const std::function<void(PartialSum&)>& visit);
  // The number of payload bytes received, repeated parts excluded.
  int64_t bytes() const { return bytes_; }

 private:
  using Parts = std::vector<std::pair<int, PartialSum>>;  // with their slices
  struct Assembly {
    ReceivedPush push;
    int stage = 0;
    Parts parts;    // of the stage of a group; elsewhere the aggregation has them
    IndexSet seen;  // parts that have arrived, by slice and place in the share
  };
  struct Worker {
    int rank = -1;
    PushTracker pushes;
    std::map<int64_t, Assembly> open;  // by push number
  };
  // A share, and the nodes of each slice in a push of it.
  struct Share {
    Range range;
    std::vector<Range> nodes;
  };

  // The shares of all steps from `from_step` to the next cut.
  struct Cut {
    int64_t from_step = 0;
    std::vector<Share> shares;
  };

  // A push of a group.
  struct Group {
    ReceivedPush push;
    std::set<int> stages;  // whose pushes are complete
    Parts parts;           // of these
  };

  void add_cut(int64_t from_step, int shares);
  const std::vector<Share>& shares_at(int64_t step) const;
  const Share* share_of(const wire::Push& push) const;
  Checked check_place(const Worker& worker, const wire::Push& push) const;
  Checked check_lists(const wire::Push& push, const std::vector<Payload>& payloads) const;
  Checked check_part(const Share& share, int stage, const wire::Part& part,
                     const Payload& payload) const;
  Checked check_stage(const wire::Push& push) const;
  // Returns true if workers with this stage push to this server: server 0 counts all of them.
  bool expects(int stage) const;
  // Takes the complete push of a stage.
  void join(Assembly of_stage);
  // The index of a slice among those of this server.
  size_t place(int slice) const;

  const int64_t micro_batches_;
  const bool records_;
  std::vector<Cut> cuts_;  // by their first step
  const Grants grants_;
  const Barriers& barriers_;
  const Shard& shard_;
  Aggregation& aggregation_;
  std::map<uint64_t, Worker> workers_;  // by incarnation
  std::vector<int64_t> slices_;         // of this server, by stage
  // pushes of groups that lack stages, by step, first micro-batch and attempt
  std::map<std::tuple<int64_t, int64_t, int64_t>, Group> groups_;
  int64_t bytes_ = 0;
};

}  // namespace pushpull
