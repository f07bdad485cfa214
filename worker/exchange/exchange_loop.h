// A worker without model and data, for `pushpull bench`: pushes one tensor, pulls the weights of
// the next step, and records the times of each step. It uses the trainer's parts: Control,
// PushPull, SocketLinks, and gradients from the same kind of pool. Single-threaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/layout/tensor_table.h"
#include "common/net/join.h"
#include "worker/exchange/encoder.h"
#include "worker/exchange/push_pull.h"
#include "worker/exchange/socket_links.h"
#include "worker/member/control.h"

namespace pushpull {

struct ExchangeOptions {
  int64_t bytes = 0;   // of the tensor, a multiple of 4
  std::string times;   // file for the times of the steps
  bool apart = false;  // pull only after the push is acknowledged, to time them separately
};

// The times of one step: nanoseconds of CLOCK_MONOTONIC.
struct ExchangeTimes {
  int64_t begin = 0;   // all weights have arrived; the push begins
  int64_t pushed = 0;  // all servers have acknowledged the push, or 1 s later; 0 without `apart`
  int64_t end = 0;     // all weights of the next step have arrived
};

// The first line of the file of times: the job.
struct ExchangeSetting {
  std::string transport;  // the job's key
  std::string optimizer;
  int64_t servers = 0;
};

// Returns the declaration of a job with one tensor; it is the same in each worker.
wire::Declare declare_exchange(int64_t bytes);

class ExchangeLoop {
 public:
  // Borrows view, control and context.
  ExchangeLoop(const ExchangeOptions& options, const JobView& view, Control& control,
               zmq::context_t& context);

  // Runs until the job is over, then writes the times if it has succeeded. Throws Error if a server
  // does not answer or the file cannot be written.
  JobEnd run();

 private:
  void push(const Task& task);
  void wait_for_push();
  void evaluate(const Task& task);
  // Ends the last step: all weights of the next one have arrived.
  void end_step();
  void write_times() const;
  void let_servers_settle();

  const ExchangeOptions options_;
  const ExchangeSetting setting_;
  Control& control_;
  PushPull push_pull_;
  SocketLinks links_;
  const TensorTable table_;
  Encoder encoder_;
  BufferPool pool_;
  std::shared_ptr<float[]> gradient_;
  std::vector<ExchangeTimes> times_;
  bool in_step_ = false;
};

}  // namespace pushpull
