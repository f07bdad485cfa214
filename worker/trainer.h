// The training loop of a worker: takes the next task from PushPull, computes it and pushes the
// result, which is usually the sum of the task's gradients. Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/net/join.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "worker/compute/compute.h"
#include "worker/compute/evaluate.h"
#include "worker/exchange/encoder.h"
#include "worker/exchange/links.h"
#include "worker/exchange/local_steps.h"
#include "worker/exchange/push_pull.h"
#include "worker/member/control.h"
#include "worker/member/time_split.h"
#include "worker/member/trace.h"
#include "worker/task_computer.h"

namespace pushpull {

struct Job;

class Trainer : private TaskHost {
 public:
  // Borrows all references.
  Trainer(const JobView& run, const Dataset& dataset, Model& model, Control& control,
          zmq::context_t& context, Trace& trace);

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

  Control& control_;
  const TensorTable& table_;
  EvaluationShare evaluation_;
  PushPull push_pull_;
  Links links_;
  Compute compute_;
  Encoder encoder_;
  std::unique_ptr<TaskComputer> computer_;
  TimeSplit split_ = watched_time_split();
  Task task_;                       // task being computed
  std::span<const float> weights_;  // of task_
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
