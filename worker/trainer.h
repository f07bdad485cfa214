// The training loop of a worker: asks PushPull what to do, computes it, pushes. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/job.h"
#include "common/net/endpoint.h"
#include "datasets/dataset.h"
#include "datasets/loader.h"
#include "models/model.h"
#include "worker/control.h"
#include "worker/evaluate.h"
#include "worker/gradient_sum.h"
#include "worker/push_pull.h"

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
  void send_outgoing();
  void wait();
  void compute(const Task& task);
  void compute_node(const Task& task, Range node, bool stream, std::vector<float>& losses);
  void evaluate(const Task& task);
  void hint_next();
  double push_squares(int64_t micro_batches) const;
  void check_finite(int64_t step, int slice, const Payload& part) const;
  void check_loss(int64_t step, int64_t micro_batch, float loss) const;

  const Job& job_;
  const uint64_t incarnation_;
  Model& model_;
  Control& control_;
  int rank_;
  Loader loader_;
  Evaluator evaluator_;
  PushPull push_pull_;
  GradientSum gradient_;
  std::vector<std::unique_ptr<Dealer>> servers_;
  std::vector<zmq::pollitem_t> poll_items_;
};

}  // namespace pushpull
