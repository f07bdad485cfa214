// The program or the library that a worker runs in. It owns what belongs to a process: its signals
// and its end.
#pragma once

#include <string>

namespace pushpull {

// The control thread calls all functions.
class WorkerOwner {
 public:
  virtual ~WorkerOwner() = default;

  // Returns the next signal (SIGINT, SIGTERM, SIGHUP) that asks the worker to leave its job, or 0.
  // Called at least every 50 ms.
  virtual int take_signal() { return 0; }
  // Returns a descriptor that is readable while take_signal would return a signal, or -1. It wakes
  // the control thread at once.
  virtual int signal_fd() const { return -1; }

  // Returns why the program around the worker cannot go on, one line, or "". The worker then leaves
  // the job with this reason. Called as take_signal, and by the trainer's thread.
  virtual std::string failure() const { return {}; }

  // Called if the worker must end without waiting for its computation: after a second SIGINT, or,
  // once, if the computation did not stop in time. A program exits here, with this exit code. If the
  // call returns, the worker leaves as soon as its computation stops.
  virtual void end_now(int code) = 0;
};

}  // namespace pushpull
