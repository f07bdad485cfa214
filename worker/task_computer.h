// Computes a training task and pushes its result. There is one kind for each way to turn gradients
// into a push; make_task_computer picks it. Used by the trainer's thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/net/message.h"
#include "models/model.h"
#include "worker/compute/compute.h"
#include "worker/exchange/local_steps.h"
#include "worker/schedule/share_list.h"

namespace pushpull {

// The trainer's side of a running task. Each call may throw to end the task.
class TaskHost {
 public:
  virtual ~TaskHost() = default;

  // Returns the task's weights. Some may still be in flight until begin_push returns.
  virtual std::span<const float> weights() const = 0;
  // Returns the function that forward calls before it reads a tensor; empty if all weights have
  // arrived.
  virtual WeightsNeeded weights_needed() = 0;
  // Returns the nodes of the gradient tree that the push consists of.
  virtual std::vector<Range> nodes() const = 0;
  // Announces that the task begins no further gradient: data of the next task may be prefetched.
  virtual void hint_next() = 0;
  // Begins the push. Waits until all weights have arrived, because a push names the versions that
  // it was computed on.
  virtual void begin_push() = 0;
  // Adds one slice of one node to the push. Call after begin_push.
  //   may_go: the slice may be sent before the others are added.
  virtual void push(Range node, int slice, Payload part, bool may_go) = 0;
  // Records that a loss or gradient of this task is not finite.
  virtual void note_not_finite() = 0;
};

class TaskComputer {
 public:
  struct Result {
    std::vector<float> losses;  // of each micro-batch, by step
    double squares = 0.0;       // of the mean gradient; 0 unless clip-norm applies per push
  };

  virtual ~TaskComputer() = default;

  // Computes the task and adds its slices to a push, which the caller ends. Returns nothing if the
  // job ended first. Throws Error(kNotFinite).
  virtual std::optional<Result> run(const Task& task, TaskHost& host) = 0;
  // Returns true if the task pushes nothing before the host has the whole gradient in its memory.
  virtual bool holds_back_pushes() const { return false; }
};

// Computes tasks of several steps (local:H): the worker updates a local copy of the weights after
// each step and pushes the total change.
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
