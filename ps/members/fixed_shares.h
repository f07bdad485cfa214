// Work in fixed shares: each worker computes the same micro-batches of every step, and another
// worker takes over the shares of a lost one (sync, ssp, local). In sync, where the division does
// not change the bits, steps are cut into more shares when more workers join. Part of the
// coordinator's state machine. Not thread-safe.
//
// All members change shares between the same two steps. The coordinator names a step S that no
// worker can have begun, since server 0 has not made its weights; server 0 releases those weights
// only when all owners and servers have the new shares. A worker that computes step S therefore
// knows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ps/members/share_table.h"
#include "ps/members/work_assignment.h"
#include "ps/server/backup_set.h"

namespace pushpull {

class FixedShares : public WorkAssignment {
 public:
  // Gives share i to the worker of rank i.
  explicit FixedShares(const WorkSetup& setup);

  void on_commit(const Commit& commit) override;
  void on_tick() override;
  bool lose(int64_t now_ms, uint64_t unit, bool reports) override;
  std::vector<uint64_t> unfinished(int64_t step) const override;
  bool may_evaluate(uint64_t unit, int64_t step, int64_t chunk) const override;
  bool has_work(uint64_t unit) const override;
  bool lacks_workers() const override;
  std::string overdue(int64_t now_ms) override;
  int64_t nearest_cut() const override;
  int64_t first_unbegun_step() const override;
  void add_to_worker_state(wire::State* state, const MemberInfo& worker) const override;
  void add_to_server_state(wire::State* state) const override;

 protected:
  // Gives vacant shares to idle workers and, with on-worker-loss = continue, to busy ones, the
  // least loaded first. In that case a worker that joined takes a share from one with two.
  void assign() override;
  //   dispensable: number of shares with pushes that a step can do without.
  FixedShares(const WorkSetup& setup, int64_t dispensable);
  // Gives a vacant share to a unit.
  virtual void give(size_t index, uint64_t unit);
  ShareTable& table() { return table_; }
  const ShareTable& table() const { return table_; }

 private:
  void fill_vacant();
  void cut_anew();
  bool all_confirmed() const;
  bool servers_have_passed(int64_t step) const;

  const int64_t dispensable_;
  ShareTable table_;
  std::vector<wire::Cut> cuts_;     // all but the first
  int64_t announced_version_ = -1;  // first State with the newest cut
  bool held_ = false;               // server 0 holds back the cut's weights
};

// Fixed shares with owners that exchange sums among themselves (allreduce): each owner learns the
// addresses of the others, a worker of a group those with its stage. Part of the coordinator's state machine. Not thread-safe.
class AllReduceShares final : public FixedShares {
 public:
  explicit AllReduceShares(const WorkSetup& setup) : FixedShares(setup) {}

  // Workers do not ask a server between steps: they pause at the next regular checkpoint.
  int64_t nearest_cut() const override {
    return setup().barriers.next_checkpoint(setup().committed.floor());
  }
  void add_to_worker_state(wire::State* state, const MemberInfo& worker) const override;
  void add_to_server_state(wire::State* state) const override;
  // Workers wait for each other, and for server 0 once kMaxReports of their loss reports are
  // unanswered. A worker is therefore less than kMaxReports + 2 steps ahead of the slowest one,
  // which is as close to server 0. Within that distance of a held step, servers put off losses.
  int64_t first_unbegun_step() const override {
    return setup().committed.floor() + 3 * (kMaxReports + 2);
  }
};

// Fixed shares of which a step uses all but B (backup:B): one set of pushes for all servers,
// evaluations that wait for all shares, and reports of dropped pushes. Part of the coordinator's
// state machine. Not thread-safe.
class BackupShares final : public FixedShares {
 public:
  explicit BackupShares(const WorkSetup& setup);

  void on_chunk(uint64_t unit, int64_t step, int64_t chunk, bool completes) override;
  Checked on_arrived(const MemberInfo& server, const wire::Arrived& arrived) override;
  void add_to_server_state(wire::State* state) const override;
  int64_t samples_at(int64_t barrier) const override;
  std::string closing_notice() const override;

 private:
  // No worker takes a second share if steps can do without it; its chunks are still evaluated.
  void assign() override;
  void give(size_t index, uint64_t unit) override;
  // Returns the newest barrier up to which evaluations are complete.
  int64_t evaluated_barrier() const;
  void find_evaluators();

  BackupChoice choice_;
};

}  // namespace pushpull
