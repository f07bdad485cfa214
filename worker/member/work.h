// The work of a worker in its job: training a model, or only exchanging weights. The life of a worker
// (worker/worker_life.h) makes it and runs it.
#pragma once

#include <functional>
#include <memory>
#include <zmq.hpp>

#include "common/net/join.h"
#include "common/net/member.h"
#include "worker/member/control.h"
#include "worker/member/trace.h"

namespace pushpull {

// The parts that the life of a worker lends to its work.
struct WorkerParts {
  Control& control;         // has joined
  zmq::context_t& context;  // for connections to servers and workers
  Trace& trace;
};

// Used on one thread.
class Work {
 public:
  virtual ~Work() = default;

  // Returns the declaration for the term that begins. Called once in each term, before `run`.
  virtual wire::Declare declare() = 0;
  // Runs the term until it is over. Throws Error if a server or a worker does not answer, or if the
  // work fails.
  virtual JobEnd run(const JobView& view) = 0;
};

// Makes the work of a worker that has joined. May take long: heartbeats continue. Throws Error if
// the job cannot be done.
using MakeWork = std::function<std::unique_ptr<Work>(const WorkerParts& parts)>;

}  // namespace pushpull
