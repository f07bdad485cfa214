// The training loop of a worker: asks PushPull what to do, computes it, pushes. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/job.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "worker/compute.h"
#include "worker/control.h"
#include "worker/evaluate.h"
#include "worker/links.h"
#include "worker/local_steps.h"
#include "worker/push_pull.h"
#include "worker/time_split.h"

namespace pushpull {

class Trainer {
 public:
  // state: of a job that trains. All references are borrowed.
  Trainer(const Job& job, uint64_t run, uint64_t incarnation, const wire::State& state,
          const Dataset& dataset, Model& model, Control& control, zmq::context_t& context);

  // Until the job is over. Throws Error for what this worker finds wrong: a loss or gradient that
  // is not finite, a server that does not answer.
  JobEnd run();

 private:
  void exchange();
  void wait();
  void start(const Task& task);
  void compute(const Task& task);
  WeightsNeeded needed_by(const Task& task);
  void await(const Task& task, const std::function<bool()>& here);
  // Says which push it was: a replay of the run finds it.
  void note_failed(const Task& task);
  void compute_round(const Task& task);
  void begin_push(const Task& task);
  void finish_push(const std::vector<float>& losses, double squares, int64_t steps);
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
  std::unique_ptr<LocalSteps> local_;  // local:H
  TimeSplit split_{now_seconds};
};

}  // namespace pushpull
