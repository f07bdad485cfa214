// sync and local:H: a step's update (local:H: a round's) takes each of its micro-batches. Parts are
// summed slice by slice as they arrive, and a slice is updated once its sum is complete. Not
// thread-safe.
//
// Source: the fixed tree of common/layout/fixed_tree.h makes the sum the same for any set of
// workers; local:H is DiLoCo (Douillard et al., arXiv 2311.08105).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "ps/engine/shard.h"
#include "ps/engine/slice_engine.h"
#include "ps/server/aggregation.h"
#include "ps/server/ledger.h"

namespace pushpull {

// The content of the pushes.
enum class StepSumKind {
  kGradients,  // of one step: leaves are micro-batches
  kChanges,    // of weights over a round of steps: leaves are shares, the rate is outer-lr
};

// The partial sums of one step, slice by slice, until they cover the whole tree. Parts are nodes of
// the tree over the step's leaves, so that any set of workers yields the same sum. A part that
// overlaps an earlier one is a duplicate and is dropped.
class StepSums {
 public:
  //   leaves: number of the tree's leaves: a step's micro-batches, or its shares.
  StepSums(const std::vector<int>& slices, int64_t leaves);

  int64_t leaves() const { return leaves_; }
  // Adds a part. Returns true if this completes the slice.
  bool add(int slice, PartialSum part);
  bool complete(int slice) const { return slices_.at(slice).covered == leaves_; }
  // Returns true if all slices are complete.
  bool all_complete() const { return open_ == 0; }
  const std::vector<PartialSum>& parts(int slice) const { return slices_.at(slice).parts; }
  // Calls visit(part) for all waiting parts.
  template <class Visit>
  void for_parts(const Visit& visit) {
    for (auto& [number, slice] : slices_) {
      for (PartialSum& part : slice.parts) visit(part);
    }
  }
  // Drops the parts of a slice after its update, for the next step.
  void clear(int slice);

 private:
  struct Slice {
    std::vector<PartialSum> parts;  // ascending
    int64_t covered = 0;
  };
  int64_t leaves_;
  int64_t open_;
  std::map<int, Slice> slices_;
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
  // Returns true if the rate of the running step is still on its way.
  bool awaits_rate() const;
  int64_t share_index(Range range) const;
  // Returns the sums of `slices`, for the shard; valid until the next call.
  std::span<const SliceUpdate> sums_of(std::span<const int> slices);
  // Returns true if a barrier has opened.
  //   normed: their factors are those of norms_; otherwise they are 1.
  bool apply(std::span<const int> slices, bool normed);

  const StepSumKind kind_;
  StepSums sums_;
  Ledger ledger_;
  StepNorms norms_;
  std::vector<int> due_;          // complete slices to update
  std::optional<double> said_;    // rate of step floor_, see ReceivedPush
  int64_t applied_slices_ = 0;    // slices that have the update of step floor_
  std::vector<SliceUpdate> now_;  // reused by every batch
};

}  // namespace pushpull
