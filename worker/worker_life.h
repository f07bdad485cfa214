// The life of a worker: it joins a job, declares its work, waits for the start, runs each term of
// the job and leaves. Owns the worker's connections, and no flag, signal or standard stream.
// Used on one thread; the control thread runs beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "common/base/console.h"
#include "common/net/keys.h"
#include "worker/member/control.h"
#include "worker/member/trace.h"
#include "worker/member/work.h"

namespace pushpull {

struct WorkerOptions {
  std::string join;              // address of the first server: tcp://HOST:PORT
  std::string job_token = {};    // of the job that it means to join, or ""
  std::string job_keys = {};     // of the job that its program means, as INI text, or ""
  double join_timeout_s = 60.0;  // for the first server's answer
  std::string device = "cpu";    // that the worker computes on, as users read it
  std::string trace;             // file for a Chrome trace; none if empty
  Keys keys;
};

// Returns PUSHPULL_RANK: the rank that the launcher numbers this worker by, or -1. Any thread.
int wanted_rank();

class WorkerLife {
 public:
  // Begins to join. Borrows `owner`. Throws Error if an option is invalid.
  WorkerLife(const WorkerOptions& options, WorkerOwner& owner);

  // Lives until the job is over for this worker, and returns its end, which the log has too. Call
  // once. Throws Error if the worker cannot join, or, after it has left, if its work or its owner
  // fails.
  JobEnd run(const MakeWork& make);

 private:
  JobEnd run_terms(const MakeWork& make);
  JobEnd run_term(Work& work);
  std::optional<wire::State> wait_for_training();

  WorkerOwner& owner_;
  Log log_{"worker"};
  zmq::context_t control_context_{1};
  zmq::context_t context_;
  Trace trace_;
  Control control_;  // last: its thread ends before the context of its socket
};

}  // namespace pushpull
