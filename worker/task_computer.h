// Computes a training task and pushes its result: one kind for each way in which gradients become a
// push, made in one place by make_task_computer. The trainer's thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "common/net/message.h"
#include "models/model.h"
#include "worker/schedule/task.h"

namespace pushpull {

// The trainer, as the running task sees it. Calls may throw to end the task.
class TaskHost {
 public:
  virtual ~TaskHost() = default;

  // The weights of the task, some of which may still be coming until begin_push has returned.
  virtual std::span<const float> weights() const = 0;
  // Forward must call this before it reads a tensor; empty where all weights are here.
  virtual WeightsNeeded weights_needed() = 0;
  // The partial sums that the push consists of.
  virtual std::vector<Range> nodes() const = 0;
  // No further gradient of this task is begun: what comes next may be read ahead.
  virtual void hint_next() = 0;
  // Waits until all weights are here: a push says what it was computed on.
  virtual void begin_push() = 0;
  // A slice of the push, one for each of its nodes. After begin_push.
  //   may_go: it may go out before the others are there.
  virtual void push(Range node, int slice, Payload part, bool may_go) = 0;
  // A loss or gradient of this task is not finite.
  virtual void note_not_finite() = 0;
};

class TaskComputer {
 public:
  struct Result {
    std::vector<float> losses;  // of each micro-batch, step by step
    double squares = 0.0;       // of the mean gradient, where clip-norm works per push
  };

  virtual ~TaskComputer() = default;

  // Computes the task and pushes its slices; the caller ends the push. None: the job was over
  // before the end. Throws Error(kNotFinite).
  virtual std::optional<Result> run(const Task& task, TaskHost& host) = 0;
  // The host needs the whole gradient in its memory before anything is pushed.
  virtual bool holds_back_pushes() const { return false; }
};

}  // namespace pushpull
