// The numbers of processes, policies and deadlines of the supervisor. Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "cli/run/replacements.h"
#include "common/job/job.h"

namespace pushpull {

struct SupervisorOptions {
  int64_t servers = 1;  // slot 0 is the coordinator
  int64_t workers = 1;
  // One process starts all workers and further servers, on any hosts: its name, "srun". It has the
  // place of the only worker (servers = workers = 1), and is never replaced. "": there is none.
  std::string step = {};
  OnWorkerLoss on_worker_loss = OnWorkerLoss::kAbort;
  OnServerLoss on_server_loss = OnServerLoss::kAbort;
  // A worker with a bad gradient is lost. The coordinator ends the job if another finds the same.
  bool quarantine = false;
  int64_t settle_ms = 1000;   // from the first failure until the others are told to end; they may
                              // report the cause and end by themselves
  int64_t stop_ms = 30000;    // from a signal to the coordinator until all processes get it
  int64_t grace_ms = 10000;   // from the first failure or signal until the rest is killed
  int64_t finish_ms = 10000;  // from the coordinator's success until the rest is killed
  ReplacementOptions replacement = {};  // of a lost process, if the job waits for another
};

}  // namespace pushpull
