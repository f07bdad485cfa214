// Computes tasks that push the sum of their micro-batches' gradients. Slices are pushed as backward
// finishes them, or, if clip-norm applies per push, once the norm of the whole sum is known.
#pragma once

#include "worker/compute/compute.h"
#include "worker/exchange/encoder.h"
#include "worker/task_computer.h"

namespace pushpull {

class GradientTasks : public TaskComputer {
 public:
  // clips_pushes: servers scale each push by its norm, so the push carries the norm. `encoder` must
  // be the encoder that the host uses for slices. Both references are borrowed.
  GradientTasks(Compute& compute, const Encoder& encoder, bool clips_pushes);

  std::optional<Result> run(const Task& task, TaskHost& host) override;
  bool holds_back_pushes() const override { return clips_pushes_; }

 private:
  Compute& compute_;
  const Encoder& encoder_;
  const bool clips_pushes_;
};

}  // namespace pushpull
