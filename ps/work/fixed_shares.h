// Work in fixed shares: each worker computes the same micro-batches of every step, and another one
// takes over the shares of a lost worker (sync, ssp, local). Part of the coordinator's state
// machine; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ps/work/share_table.h"
#include "ps/work/work_assignment.h"

namespace pushpull {

class FixedShares : public WorkAssignment {
 public:
  // Gives share i to the worker of rank i.
  explicit FixedShares(const WorkSetup& setup);

  void on_commit(const Commit& commit) override;
  bool lose(int64_t now_ms, const MemberInfo& worker) override;
  // Vacant shares go to idle workers, and where the job says `continue` to busy ones, the least
  // loaded first.
  void fill() override;
  std::vector<uint64_t> unfinished(int64_t step) const override;
  bool may_evaluate(uint64_t incarnation, int64_t step, int64_t chunk) const override;
  bool has_work(uint64_t incarnation) const override;
  bool lacks_workers() const override;
  std::string overdue(int64_t now_ms) override;
  void add_to_worker_state(wire::State* state, const MemberInfo& worker) const override;

 protected:
  // needed_shares: a step cannot end without the pushes of so many.
  FixedShares(const WorkSetup& setup, int64_t needed_shares);
  // A worker takes over this vacant share.
  virtual void give(size_t index, uint64_t incarnation);
  // The job goes on without waiting for a replacement.
  bool continues() const { return setup().job.on_worker_loss == OnWorkerLoss::kContinue; }
  ShareTable& table() { return table_; }
  const ShareTable& table() const { return table_; }

 private:
  const int64_t needed_shares_;
  ShareTable table_;
};

}  // namespace pushpull
