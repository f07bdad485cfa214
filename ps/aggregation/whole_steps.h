// sync and local:H: a step's update (local:H: a round's) takes each of its micro-batches. Parts are
// summed slice by slice as they arrive, and a slice is updated once its sum is complete. Not
// thread-safe.
//
// Source: the fixed tree of common/layout/fixed_tree.h makes the sum the same for any set of
// workers; local:H is DiLoCo (Douillard et al., arXiv 2311.08105).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ps/aggregation/aggregation.h"
#include "ps/aggregation/ledger.h"
#include "ps/aggregation/step_norms.h"
#include "ps/aggregation/step_sums.h"

namespace pushpull {

// The content of the pushes.
enum class StepSumKind {
  kGradients,  // of one step: leaves are micro-batches
  kChanges,    // of weights over a round of steps: leaves are shares, the rate is outer-lr
};

class WholeSteps : public Aggregation {
 public:
  WholeSteps(AggregationSetup setup, StepSumKind kind);

  std::vector<Range> nodes_of(Range share) const override;
  using Aggregation::check;
  Checked check(const wire::Push& push) const override;
  void take_part(ReceivedPush& push, int slice, PartialSum part) override;
  void take_push(ReceivedPush push) override;
  bool apply_due() override;
  void for_waiting(const std::function<void(PartialSum&)>& visit) override;
  std::optional<SliceAnswer> answer(const wire::Pull& pull, int slice) const override;
  bool asks_for_one_version(const wire::Pull& pull) const override { return !pull.latest(); }
  bool on_norm_total(const wire::NormTotal& total) override;
  bool try_open_barrier() override;
  const std::optional<wire::Norms>& waiting_norms() const override { return norms_.waiting(); }

 private:
  bool changes() const { return kind_ == StepSumKind::kChanges; }
  int64_t share_index(Range range) const;
  // Returns the sums of `slices`, for the shard; valid until the next call.
  std::span<const SliceUpdate> sums_of(std::span<const int> slices);
  // Returns true if a barrier has opened.
  bool apply(std::span<const int> slices, double clip);

  const StepSumKind kind_;
  StepSums sums_;
  Ledger ledger_;
  StepNorms norms_;
  std::vector<int> due_;          // complete slices to update
  int64_t applied_slices_ = 0;    // slices that have the update of step floor_
  std::vector<SliceUpdate> now_;  // reused by every batch
};

}  // namespace pushpull
