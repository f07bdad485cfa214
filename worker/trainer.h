// The training loop of a worker, and the computation of one task.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/net/join.h"
#include "common/net/message.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "worker/compute/compute.h"
#include "worker/compute/evaluate.h"
#include "worker/exchange/encoder.h"
#include "worker/exchange/links.h"
#include "worker/exchange/local_steps.h"
#include "worker/exchange/push_pull.h"
#include "worker/exchange/share_list.h"
#include "worker/member/coordinator_link.h"
#include "worker/member/time_split.h"
#include "worker/member/trace.h"

namespace pushpull {

struct Job;

// Computes a training task and pushes its result. There is one kind for each way to turn gradients
// into a push; make_task_computer picks it. Used by the trainer's thread.

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

// Returns the setup of PushPull for a trainer of this model.
PushPullSetup trainer_setup(const JobView& run, const Dataset& dataset, Model& model);

// The training loop of a worker: takes the next task from PushPull, computes it and pushes the
// result, which is usually the sum of the task's gradients. Knows neither sockets nor the clock: the
// simulation drives it too. Single-threaded.
class Trainer : private TaskHost {
 public:
  // setup: of trainer_setup, or a changed one. Borrows all references.
  Trainer(const JobView& run, PushPullSetup setup, const Dataset& dataset, Model& model,
          CoordinatorLink& coordinator, const MakeLinks& make_links, Trace& trace);

  // Trains until the job is over. Throws Error if this worker fails: a loss or gradient is not
  // finite, or a server does not answer.
  JobEnd run();

 private:
  // ---- TaskHost, for task_ ----
  std::span<const float> weights() const override { return weights_; }
  WeightsNeeded weights_needed() override;
  std::vector<Range> nodes() const override { return push_pull_.nodes(task_.range); }
  void hint_next() override;
  void begin_push() override;
  void push(Range node, int slice, Payload part, bool may_go) override;
  // Also records the step, micro-batches and versions of the push, so that a replay of the run
  // finds it.
  void note_not_finite() override;

  JobEnd train();
  void let_go();
  void exchange();
  void wait();
  // Gives the model the weights at the end of the job, once, if they are here.
  void keep_final(int64_t end_step);
  // Adds a trace event for each slice in `message`.
  void note_weights(const Message& message);
  void compute(const Task& task);
  // Waits until `here` returns true and exchanges messages meanwhile. Throws Dropped if the task is
  // void.
  //   number: of the trace event, as in Trace::add.
  void await(int64_t number, const std::function<bool()>& here);
  void end_wait(const Task& task);
  void finish_push(const TaskComputer::Result& result);
  void evaluate(const Task& task);

  CoordinatorLink& coordinator_;
  const TensorTable& table_;
  EvaluationShare evaluation_;
  PushPull push_pull_;
  const std::unique_ptr<Links> links_;
  Compute compute_;
  Encoder encoder_;
  std::unique_ptr<TaskComputer> computer_;
  TimeSplit split_ = watched_time_split();
  Task task_;                       // task being computed
  std::span<const float> weights_;  // of task_
  bool final_kept_ = false;         // since the last task, if this worker has the final weights
  Trace& trace_;
  double waits_since_s_ = 0.0;  // when the last task ended; only if tracing
};

// Makes the TaskComputer of a worker. The job's strategy decides its kind here and nowhere else.
//   total_steps: the horizon of the learning rate's schedule.
//   memory: where local steps keep buffers that servers read.
// Borrows `job`, `table`, `compute` and `encoder`; the host must encode slices with this encoder.
std::unique_ptr<TaskComputer> make_task_computer(const Job& job, const TensorTable& table,
                                                 const SliceMap& map, int64_t total_steps,
                                                 const LocalMemory& memory, Compute& compute,
                                                 const Encoder& encoder);

}  // namespace pushpull
