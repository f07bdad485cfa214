// The pool that async workers draw leases from: each (step, share) once, in order, evaluations at
// barriers, and the unfinished leases of lost workers. Part of the coordinator's state machine. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/job/barriers.h"
#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "ps/members/work_assignment.h"
#include "ps/server/grants.h"

namespace pushpull {

class LeasePool {
 public:
  // Borrows barriers, followed and grants.
  //   barriers, followed: of the run. They may change while the pool is used.
  //   shares: leases per step, and groups of chunks per evaluation.
  //   grants: makes the leases' grants.
  LeasePool(const Barriers& barriers, const FollowedEvaluations& followed, int shares,
            int64_t micro_batches, int64_t chunks, const Grants& grants);

  // Returns all leases that the worker holds.
  std::vector<wire::Lease> held(uint64_t incarnation) const;
  // Returns the worker's leases, topped up to kHeld from the pool, and relieved.
  std::vector<wire::Lease> grant(uint64_t incarnation);
  // Gives the worker a returned lease beyond kHeld if all of its own are behind a barrier that some
  // server cannot open without that lease. The worker may be waiting for that server.
  void relieve(uint64_t incarnation);
  // Returns true if the numbers of the worker's leases are not in the order of the work: it has drawn a
  // returned lease of an earlier step.
  bool out_of_order(uint64_t incarnation) const;
  // Gives all leases to another holder, numbered in the order of the work.
  void pass_on(uint64_t incarnation, uint64_t to);
  // Notes that server 0 has passed barrier `step`: its evaluation and later leases may be drawn.
  void open_barrier(int64_t step);
  // Returns the first step without a drawn lease, such that no server can have opened its barrier
  // without a checkpoint.
  int64_t nearest_cut() const;
  // Returns the first step without a drawn lease.
  int64_t undrawn() const { return share_ == 0 ? step_ : step_ + 1; }
  // Notes that server 0 has accepted a push.
  void finish_training(uint64_t incarnation, int64_t step, Range range);
  void finish_evaluation(uint64_t incarnation, int64_t step, int64_t chunk);
  // holds_evaluation: true if the worker holds this chunk. has_drawn: true if it ever had a lease.
  bool holds_evaluation(uint64_t incarnation, int64_t step, int64_t chunk) const;
  bool has_drawn(uint64_t incarnation) const;
  // Returns the workers that hold leases of steps up to `step`, or of an evaluation.
  std::vector<uint64_t> holders(int64_t step) const;
  // Returns a lost worker's leases to the pool: all that it holds, and the one it finished last,
  // which may not have reached every server. Servers that have it drop the repeat by their ledgers.
  void lose(uint64_t incarnation);

 private:
  static constexpr size_t kHeld = 2;  // one to compute, one to read data ahead; `relieve` adds one

  struct Holder {
    int64_t next_number = 1;
    std::vector<wire::Lease> held;
    std::optional<wire::Lease> last_finished;
  };
  std::optional<wire::Lease> draw();
  // Draws a lease for the worker. Returns false if there is none.
  bool draw_for(uint64_t incarnation, Holder& holder);
  void put_first(const wire::Lease& lease);
  bool evaluating() const;
  const Holder* find(uint64_t incarnation) const;

  const Barriers& barriers_;
  const FollowedEvaluations& followed_;
  int shares_;
  int64_t micro_batches_;
  int64_t chunks_;
  const Grants& grants_;
  int64_t step_;
  int share_ = 0;
  int64_t open_barrier_;
  // Drawn before the pool: returned leases and evaluations, by work_order. A server cannot hand out
  // the weights of an evaluation before it has all earlier leases.
  std::deque<wire::Lease> first_;
  std::map<uint64_t, Holder> holders_;
};

// Work in leases that workers draw from one pool (async): a lost worker's leases are drawn again,
// and a changed number of workers needs no new division. Part of the coordinator's state machine.
// Not thread-safe.
class LeasedWork final : public WorkAssignment {
 public:
  explicit LeasedWork(const WorkSetup& setup);

  void on_commit(const Commit& commit) override;
  void on_barrier_open(int64_t step) override;
  void on_chunk(uint64_t unit, int64_t step, int64_t chunk, bool completes) override;
  bool lose(int64_t now_ms, uint64_t unit, bool reports) override;
  std::vector<uint64_t> unfinished(int64_t step) const override { return pool_.holders(step); }
  bool may_evaluate(uint64_t unit, int64_t step, int64_t chunk) const override {
    return pool_.holds_evaluation(unit, step, chunk);
  }
  bool has_work(uint64_t unit) const override { return pool_.has_drawn(unit); }
  bool lacks_workers() const override { return setup().groups.units().empty() || is_paused(); }
  std::string overdue(int64_t now_ms) override;
  std::vector<wire::Lease> leases(const MemberInfo& worker) override;
  void add_to_worker_state(wire::State* state, const MemberInfo& worker) const override;
  int64_t nearest_cut() const override { return pool_.nearest_cut(); }
  int64_t first_unbegun_step() const override { return pool_.undrawn(); }

 private:
  // Workers draw leases themselves, but not while all that they hold wait for a returned one.
  void assign() override;
  uint64_t unit_of(const MemberInfo& worker) const;
  // Renews a group that must compute its leases in another order. Returns the unit.
  uint64_t in_order(uint64_t unit);
  std::vector<wire::Lease> signed_for(const MemberInfo& worker,
                                      std::vector<wire::Lease> leases) const;
  LeasePool pool_;
  int64_t lacking_since_ms_ = -1;  // start of the lack of workers; -1 if there are enough
};

}  // namespace pushpull
