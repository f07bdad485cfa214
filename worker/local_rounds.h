// Computes tasks of several steps (local:H): the worker updates a local copy of the weights after
// each step and pushes the total change.
#pragma once

#include "worker/compute/compute.h"
#include "worker/exchange/local_steps.h"
#include "worker/task_computer.h"

namespace pushpull {

class LocalRounds : public TaskComputer {
 public:
  // Borrows `compute`.
  LocalRounds(Compute& compute, LocalSteps steps);

  std::optional<Result> run(const Task& task, TaskHost& host) override;

 private:
  Compute& compute_;
  LocalSteps steps_;
};

}  // namespace pushpull
