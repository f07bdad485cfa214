// Clipping by the norm of a whole step's gradient: every server sends the squares of its slices,
// the coordinator answers with the norm over all of them. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "common/net/message.h"
#include "ps/engine/shard.h"

namespace pushpull {

class StepNorms {
 public:
  // incarnation: of this server.
  explicit StepNorms(uint64_t incarnation) : incarnation_(incarnation) {}

  // Squares what the updates of all slices would sum; from then on the step waits for its total.
  //   leaves, divisor: see Shard::norms.
  void start(int64_t step, Shard& shard, std::span<const SliceUpdate> updates, int64_t leaves,
             double divisor, Parallel& parallel);
  // The squares to send again and again until `take`; empty when no step waits.
  const std::optional<wire::Norms>& waiting() const { return waiting_; }
  // Ends the wait. Returns the factor of the gradient; empty when this is not what is waited for.
  std::optional<double> take(const wire::NormTotal& total, double clip_norm);

 private:
  uint64_t incarnation_;
  std::optional<wire::Norms> waiting_;
};

}  // namespace pushpull
