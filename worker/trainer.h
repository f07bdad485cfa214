// The training loop of a worker: asks PushPull what to do, computes it, pushes. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "worker/compute/compute.h"
#include "worker/compute/evaluate.h"
#include "worker/exchange/encoder.h"
#include "worker/exchange/links.h"
#include "worker/exchange/local_steps.h"
#include "worker/exchange/push_pull.h"
#include "worker/member/control.h"
#include "worker/trace/time_split.h"
#include "worker/trace/trace.h"

namespace pushpull {

class Trainer {
 public:
  // state: of a job that trains. All references are borrowed.
  Trainer(const Job& job, uint64_t run, uint64_t incarnation, const wire::State& state,
          const Dataset& dataset, Model& model, Control& control, zmq::context_t& context,
          Trace& trace);

  // Until the job is over. Throws Error for what this worker finds wrong: a loss or gradient that
  // is not finite, a server that does not answer.
  JobEnd run();

 private:
  void exchange();
  void wait();
  // Traced: which slices a message has brought.
  void note_weights(const Message& message);
  void start(const Task& task);
  void compute(const Task& task);
  WeightsNeeded needed_by(const Task& task);
  // number: what is waited for, as Trace::add takes it.
  void await(const Task& task, int64_t number, const std::function<bool()>& here);
  void end_wait(const Task& task);
  // Says which push it was: a replay of the run finds it.
  void note_failed(const Task& task);
  void compute_round(const Task& task);
  void begin_push(const Task& task);
  void finish_push(const Task& task, const std::vector<float>& losses, double squares);
  void evaluate(const Task& task);
  void hint_next();

  const Job& job_;
  const uint64_t incarnation_;
  Control& control_;
  const TensorTable& table_;
  Evaluator evaluator_;
  PushPull push_pull_;
  Links links_;
  Compute compute_;
  Encoder encoder_;
  std::unique_ptr<LocalSteps> local_;  // local:H
  TimeSplit split_{now_seconds};
  std::span<const float> weights_;  // of the running task
  Trace& trace_;
  double waits_since_s_ = 0.0;  // traced: since the last task
};

}  // namespace pushpull
