// Work in leases that workers draw from one pool (async): a lost worker's leases are drawn again,
// and a changed number of workers needs no new division. Part of the coordinator's state machine.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ps/work/lease_pool.h"
#include "ps/work/work_assignment.h"

namespace pushpull {

class LeasedWork final : public WorkAssignment {
 public:
  explicit LeasedWork(const WorkSetup& setup);

  void on_commit(const Commit& commit) override;
  void on_barrier_open(int64_t step) override;
  void on_chunk(uint64_t incarnation, int64_t step, int64_t chunk) override;
  void on_evaluated(int64_t step) override { pool_.evaluated(step); }
  bool lose(int64_t now_ms, const MemberInfo& worker) override;
  std::vector<uint64_t> unfinished(int64_t step) const override { return pool_.holders(step); }
  bool may_evaluate(uint64_t incarnation, int64_t step, int64_t chunk) const override {
    return pool_.holds_evaluation(incarnation, step, chunk);
  }
  bool has_work(uint64_t incarnation) const override { return pool_.has_drawn(incarnation); }
  bool lacks_workers() const override { return workers_with_rank() == 0 || is_paused(); }
  std::string overdue(int64_t now_ms) override;
  std::vector<wire::Lease> leases(const MemberInfo& worker) override;
  void add_to_worker_state(wire::State* state, const MemberInfo& worker) const override;
  int64_t nearest_cut() const override { return pool_.nearest_cut(); }
  void stop_at(int64_t step) override { pool_.stop_at(step); }
  int64_t first_unbegun_step() const override { return pool_.undrawn(); }
  void on_chosen(int64_t step, bool held) override { pool_.choose(step, held); }

 private:
  // Workers draw leases themselves, but not while all that they hold wait for a returned one.
  void assign() override;
  LeasePool pool_;
  int64_t lacking_since_ms_ = -1;  // start of the lack of workers; -1 if there are enough
};

}  // namespace pushpull
