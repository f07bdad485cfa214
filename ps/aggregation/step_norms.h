// Clipping by the norm of a whole step's gradient: every server sends the squares of its slices,
// and the coordinator answers with the norm over all of them. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "common/net/message.h"

namespace pushpull {

class Parallel;
class Shard;
struct SliceUpdate;

class StepNorms {
 public:
  // incarnation: of this server.
  explicit StepNorms(uint64_t incarnation) : incarnation_(incarnation) {}

  // Computes the squares of the sums of slices that are complete, while gradients of other slices
  // are still on their way. Each slice is added once per step.
  //   leaves, divisor: see Shard::norms.
  void add(Shard& shard, std::span<const SliceUpdate> updates, int64_t leaves, double divisor,
           Parallel& parallel);
  // Ends the sums of the step: all slices are added. The step then waits for the total over all
  // servers.
  void finish(int64_t step);
  // The squares to resend until `take`; empty if no step waits.
  const std::optional<wire::Norms>& waiting() const { return waiting_; }
  // Ends the wait. Returns the gradient's clipping factor, or nothing if `total` is for another
  // step.
  std::optional<double> take(const wire::NormTotal& total, double clip_norm);

 private:
  uint64_t incarnation_;
  wire::Norms sums_;  // of the slices added so far
  std::optional<wire::Norms> waiting_;
};

}  // namespace pushpull
