// The work of a worker without model and data, for `pushpull bench`: the usual trainer, with steps that
// push one tensor of constants, and records of their times.
#pragma once

#include <cstdint>
#include <string>

#include "common/net/join.h"
#include "worker/member/work.h"

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

class ExchangeWork final : public Work {
 public:
  // Throws Error(kUsage) unless the job's strategy is sync.
  ExchangeWork(const WorkerParts& parts, ExchangeOptions options);

  // Declares one tensor, the same in each worker.
  wire::Declare declare() override;
  // Writes the times if the job has succeeded. Throws Error(kIo) if it cannot.
  JobEnd run(const JobView& view) override;

 private:
  const WorkerParts parts_;
  const ExchangeOptions options_;
};

}  // namespace pushpull
