// Fixed shares of which a step takes all but B (backup:B): one set of pushes for all servers, which
// evaluations wait for everybody, and whose pushes were dropped. Part of the coordinator's state
// machine; one thread.
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
  // No worker takes a second share that a step can do without; its chunks are evaluated all the
  // same.
  void assign() override;
  void give(size_t index, uint64_t incarnation) override;
  // Barriers up to this one have been evaluated.
  int64_t evaluated_barrier() const;
  void find_evaluators();

  BackupChoice choice_;
};

}  // namespace pushpull
