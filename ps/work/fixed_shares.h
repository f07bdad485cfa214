// Work in fixed shares: each worker computes the same micro-batches of every step, and another one
// takes over the shares of a lost worker (sync, ssp, local). In sync, where the bits do not depend on
// it, steps are cut into more shares when more workers come. Part of the coordinator's state machine;
// one thread.
//
// Shares change between two steps, everywhere between the same two: the coordinator names a step S
// that nobody can have begun, since server 0 has not made its weights; server 0 hands those out only
// when all owners and servers have heard of the new shares. Whoever computes step S knows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ps/work/share_table.h"
#include "ps/work/work_assignment.h"

namespace pushpull {

class FixedShares : public WorkAssignment {
 public:
  // Gives share i to the worker of rank i.
  explicit FixedShares(const WorkSetup& setup);

  void on_commit(const Commit& commit) override;
  void on_tick() override;
  bool lose(int64_t now_ms, const MemberInfo& worker) override;
  std::vector<uint64_t> unfinished(int64_t step) const override;
  bool may_evaluate(uint64_t incarnation, int64_t step, int64_t chunk) const override;
  bool has_work(uint64_t incarnation) const override;
  bool lacks_workers() const override;
  std::string overdue(int64_t now_ms) override;
  int64_t nearest_cut() const override;
  int64_t first_unbegun_step() const override;
  void add_to_worker_state(wire::State* state, const MemberInfo& worker) const override;
  void add_to_server_state(wire::State* state) const override;

 protected:
  // Vacant shares go to idle workers, and where the job says `continue` to busy ones, the least
  // loaded first. There a worker that has come takes one of whoever has two.
  void assign() override;
  // dispensable: a step can end without the pushes of so many shares.
  FixedShares(const WorkSetup& setup, int64_t dispensable);
  // A worker takes over this vacant share.
  virtual void give(size_t index, uint64_t incarnation);
  ShareTable& table() { return table_; }
  const ShareTable& table() const { return table_; }

 private:
  void fill_vacant();
  void cut_anew();
  bool everybody_knows() const;
  bool servers_have_passed(int64_t step) const;

  const int64_t dispensable_;
  ShareTable table_;
  std::vector<wire::Cut> cuts_;   // after the first one
  int64_t said_in_version_ = -1;  // of the state, for the first time: the newest cut
  bool held_ = false;             // server 0 hands out no weights that are for it
};

}  // namespace pushpull
