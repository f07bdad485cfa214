// What a worker does with the gradients of a task: one kind for each way in which they move the
// weights. The trainer (worker/trainer.h) takes the tasks, and runs the step of the job's strategy on
// each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "models/model.h"
#include "worker/compute/compute.h"
#include "worker/exchange/encoder.h"
#include "worker/exchange/local_steps.h"
#include "worker/exchange/share_list.h"
#include "worker/exchange/to_server.h"
#include "worker/member/time_split.h"

namespace pushpull {

struct Job;

// The trainer's side of a running task. Each call may throw to end the task.
class StepHost {
 public:
  virtual ~StepHost() = default;

  // Returns the task's weights. Some may still be in flight until begin_push returns.
  virtual std::span<const float> weights() const = 0;
  // Returns the function that forward calls before it reads a tensor; empty if all weights have
  // arrived.
  virtual WeightsNeeded weights_needed() = 0;
  // Returns the nodes of the gradient tree that the push consists of.
  virtual std::vector<Range> nodes() const = 0;
  // Announces that the task begins no further gradient: data of the next task may be prefetched.
  virtual void hint_next() = 0;
  // Returns true if the task may become void until its last node is computed, even with all weights here: a push
  // must not begin earlier, because a push that has begun must end.
  virtual bool may_become_void() const { return false; }
  // Waits until all weights have arrived.
  virtual void await_all_weights() = 0;
  // Begins the push. Waits until all weights have arrived, because a push names the versions that
  // it was computed on.
  virtual void begin_push() = 0;
  // Returns one slice of one node as it is pushed: in the job's codec.
  virtual Payload encoded(Range node, int slice, Payload part) = 0;
  // Adds one slice of one node, encoded, to the push. Call after begin_push.
  //   may_go: the slice may be sent before the others are added.
  virtual void push(Range node, int slice, Payload part, bool may_go) = 0;
  // Records that a loss or gradient of this task is not finite.
  virtual void note_not_finite() = 0;

  // Exchanges messages with the servers until `done`. Throws JobOver once the job is over.
  //   what: is waited for, for messages.
  virtual void await(const std::function<bool()>& done, const char* what) = 0;
  // Sends a message of the step itself; answers come to Step::on_message.
  virtual void send(ToServer message) = 0;
  // Returns the most pushes that a server has not acknowledged.
  virtual int64_t unacknowledged() const = 0;
  virtual TimeSplit& split() = 0;
  // Returns the attempt of the group that the task belongs to; 0 without one.
  virtual int64_t attempt() const { return 0; }
};

// Used by the trainer's thread.
class Step {
 public:
  struct Result {
    std::vector<float> losses;  // of each micro-batch, by step
    double squares = 0.0;       // of the mean gradient; 0 unless clip-norm applies per push
    // That the model's program has said at the end of the first micro-batch; of the last step.
    std::optional<double> learning_rate = {};
  };

  virtual ~Step() = default;

  // Called once, before the first task.
  virtual void start(StepHost& /*host*/) {}
  // Computes the task and adds its slices to a push, which the caller ends. Returns nothing if the
  // job ended first. Throws Error(kNotFinite).
  virtual std::optional<Result> run(const Task& task, StepHost& host) = 0;
  // Called when the push was sent.
  virtual void pushed(const Task& /*task*/, StepHost& /*host*/) {}
  // Returns true if the task pushes nothing before the host has the whole gradient in its memory.
  virtual bool holds_back_pushes() const { return false; }

  // What has passed between this worker and others so far.
  struct Traffic {
    int64_t sent = 0;      // payload bytes
    int64_t received = 0;  // payload bytes
    int64_t rejected = 0;  // messages
  };
  virtual Traffic traffic() const { return {}; }

  // ---- a worker that keeps the weights itself ----
  // Returns its weights; empty if they are the servers'.
  virtual std::span<const float> own_weights() const { return {}; }
  // Returns those that an evaluation takes: the averages of its weights, with Barriers::averages.
  virtual std::span<const float> evaluated_weights() const { return own_weights(); }
  virtual void on_message(int /*server*/, const Message& /*message*/) {}
  virtual void on_state(const wire::State& /*state*/) {}
};

// Tasks of several steps (local:H): the worker updates a local copy of the weights after each step
// and pushes the total change.
class LocalRounds final : public Step {
 public:
  // clips: steps are clipped by their norm. Borrows `compute`.
  LocalRounds(Compute& compute, LocalSteps steps, bool clips = false);

  std::optional<Result> run(const Task& task, StepHost& host) override;

 private:
  Compute& compute_;
  LocalSteps steps_;
  const bool clips_;
  int64_t attempt_ = 0;  // of the group that has the states
};

// What a step works with: parts of the trainer, which outlive it.
struct StepParts {
  Compute& compute;
  const Encoder& encoder;  // the host encodes slices with it
  const SliceMap& slices;
  FloatAllocator gradients;  // memory that servers read
  SlicePart part = {};       // that the worker updates and reads
};
using MakeStep = std::function<std::unique_ptr<Step>(const StepParts&)>;

// Returns the maker of the steps that push to servers. The job's strategy decides their kind here and
// nowhere else.
//   total_steps: the horizon of the learning rate's schedule.
// Borrows `job` and `model`.
MakeStep push_steps(const Job& job, Model& model, int64_t total_steps);

}  // namespace pushpull
