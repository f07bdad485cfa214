// A worker without model and data, for `pushpull bench`: pushes one tensor, pulls the weights of
// the next step, and writes down when each step began and ended. It goes the trainer's way: the
// same Control, PushPull and Links, and a gradient from the same kind of pool. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/net/job_view.h"
#include "worker/exchange/encoder.h"
#include "worker/exchange/links.h"
#include "worker/exchange/push_pull.h"
#include "worker/member/control.h"

namespace pushpull {

struct ExchangeOptions {
  int64_t bytes = 0;   // of the tensor, a multiple of 4
  std::string times;   // file for the times of the steps
  bool apart = false;  // the pull begins when the push is acknowledged, so that each has a time
};

// One step: nanoseconds of CLOCK_MONOTONIC.
struct ExchangeTimes {
  int64_t begin = 0;   // all weights are here, pushing begins
  int64_t pushed = 0;  // all servers have the push; 0 where the pull did not wait for that
  int64_t end = 0;     // all weights of the next step are here
};

// First line of the file with the times: the job.
struct ExchangeSetting {
  std::string transport;  // as the job says it
  std::string optimizer;
  int64_t servers = 0;
};

// The declaration of a job of one tensor, the same in each worker.
wire::Declare declare_exchange(int64_t bytes);

class ExchangeLoop {
 public:
  // view, control and context are borrowed.
  ExchangeLoop(const ExchangeOptions& options, const JobView& view, Control& control,
               zmq::context_t& context);

  // Until the job is over; then writes the times. Throws Error for a server that does not answer,
  // and for a file that cannot be written.
  JobEnd run();

 private:
  void push(const Task& task);
  void wait_for_push();
  void evaluate(const Task& task);
  // All weights of the next step are here, which ends the step before.
  void end_step();
  void write_times() const;
  void let_servers_settle();

  const ExchangeOptions options_;
  const ExchangeSetting setting_;
  Control& control_;
  PushPull push_pull_;
  Links links_;
  const TensorTable table_;
  Encoder encoder_;
  BufferPool pool_;
  std::shared_ptr<float[]> gradient_;
  std::vector<ExchangeTimes> times_;
  bool in_step_ = false;
};

}  // namespace pushpull
