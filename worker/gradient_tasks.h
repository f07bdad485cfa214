// Tasks whose push is the sum of their micro-batches' gradients: slices go out as backward finishes
// them, or, where clip-norm works per push, once the norm of all is known.
#pragma once

#include "worker/compute/compute.h"
#include "worker/exchange/encoder.h"
#include "worker/task_computer.h"

namespace pushpull {

class GradientTasks : public TaskComputer {
 public:
  // clips_pushes: servers scale the push by its own norm, which it must name. Borrows both; the
  // encoder is the one that the host encodes slices with.
  GradientTasks(Compute& compute, const Encoder& encoder, bool clips_pushes);

  std::optional<Result> run(const Task& task, TaskHost& host) override;
  bool holds_back_pushes() const override { return clips_pushes_; }

 private:
  Compute& compute_;
  const Encoder& encoder_;
  const bool clips_pushes_;
};

}  // namespace pushpull
