// backup:B: a step's update takes the set of pushes that the coordinator chooses, the same one at
// all servers (backup_set.h). The step's other pushes are dropped. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ps/engine/shard.h"
#include "ps/server/aggregation.h"
#include "ps/server/backup_set.h"

namespace pushpull {

class ChosenSet : public Aggregation {
 public:
  explicit ChosenSet(AggregationSetup setup);

  using Aggregation::check;
  Checked check(const wire::Push& push) const override { return check_basis(push, push.step()); }
  void take_part(ReceivedPush& push, int slice, PartialSum part) override;
  void take_push(ReceivedPush push) override;
  bool apply_due() override { return false; }  // the coordinator's choice makes the update
  void for_waiting(const std::function<void(PartialSum&)>& visit) override;
  std::optional<SliceAnswer> answer(const wire::Pull& pull, int slice) const override;
  bool asks_for_one_version(const wire::Pull& pull) const override {
    return !pull.latest() && !pull.barrier();
  }
  bool is_past(const wire::Pull& pull) const override;
  bool on_chosen(const wire::Chosen& chosen) override;
  bool on_norm_total(const wire::NormTotal& total) override;
  bool try_open_barrier() override;
  const std::optional<wire::Norms>& waiting_norms() const override { return norms_.waiting(); }
  const std::optional<wire::Arrived>& waiting_arrived() const override { return arrived_; }

 private:
  // Returns true if the step's set was chosen without this push.
  bool too_late(int64_t step) const { return step < floor_ || pushes_.decided(); }
  // Returns the sums of the chosen pushes, for the shard; valid until the next call.
  std::span<const SliceUpdate> sums();
  void apply();
  void end_step();
  int64_t newest_version() const;

  BackupSet pushes_;
  StepNorms norms_;
  std::optional<wire::Arrived> arrived_;
  std::vector<SliceUpdate> now_;  // reused by every step
};

}  // namespace pushpull
