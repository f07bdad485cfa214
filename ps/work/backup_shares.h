// Fixed shares of which a step uses all but B (backup:B): one set of pushes for all servers,
// evaluations that wait for all shares, and reports of dropped pushes. Part of the coordinator's
// state machine. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ps/aggregation/backup_set.h"
#include "ps/work/fixed_shares.h"

namespace pushpull {

class BackupShares final : public FixedShares {
 public:
  explicit BackupShares(const WorkSetup& setup);

  void on_evaluation_complete() override;
  Checked on_arrived(const MemberInfo& server, const wire::Arrived& arrived) override;
  void add_to_server_state(wire::State* state) const override;
  int64_t samples_at(int64_t barrier) const override;
  std::string closing_notice() const override;

 private:
  // No worker takes a second share if steps can do without it; its chunks are still evaluated.
  void assign() override;
  void give(size_t index, uint64_t incarnation) override;
  // Returns the newest barrier up to which evaluations are complete.
  int64_t evaluated_barrier() const;
  void find_evaluators();

  BackupChoice choice_;
};

}  // namespace pushpull
