// Decides about the processes of one task of `pushpull run --over`: a worker, and perhaps a further
// server beside it. A state machine: takes ends of processes, returns what to do. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/run/ending.h"
#include "common/job/job.h"

namespace pushpull {

struct TaskOptions {
  OnWorkerLoss on_worker_loss = OnWorkerLoss::kAbort;
  OnServerLoss on_server_loss = OnServerLoss::kAbort;
  int64_t most = 3;  // replacements of each process
};

class TaskRules {
 public:
  struct Verdict {
    bool restart = false;
    std::string say = {};  // a line for users, or ""
  };

  // Member 0 is the worker, member 1 the server if there is one.
  TaskRules(const TaskOptions& options, size_t members) : options_(options), made_(members) {}

  // This process was told to end: nothing is replaced any more.
  void told_to_end() { told_ = true; }
  Verdict ended(size_t member, const Ending& ending);
  // Returns 0 if the job may go on, or has ended, without the processes that failed here; else the
  // code of the first one. A stop with a checkpoint is no failure: the coordinator reports it.
  int exit_code() const { return code_; }

 private:
  bool waits_for_another(size_t member) const;
  bool goes_on_without(size_t member, const Ending& ending) const;

  const TaskOptions options_;
  std::vector<int64_t> made_;
  bool told_ = false;
  int code_ = 0;
};

}  // namespace pushpull
