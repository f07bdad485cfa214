// A worker inside another program: lives on a thread of its own, and hands its tasks to the caller's
// thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "client/external_model.h"
#include "client/handover.h"
#include "common/job/job.h"
#include "worker/training_work.h"
#include "worker/worker_life.h"

namespace pushpull {

class Session {
 public:
  // Begins to join.
  Session(WorkerOptions options, PeerPort port);
  // The job loses this worker unless it is over.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Waits until the worker has joined, at most for `timeout_ms` unless that is negative. Returns the
  // job, or nothing if there is none yet. Throws Error if the worker could not join, or if the job's
  // model is not external.
  std::optional<Job> wait_joined(int64_t timeout_ms);
  // Declares the caller's model. Throws Error(kUsage) if called twice.
  void attach(ExternalSpec spec);
  // Returns the tasks, which end with the worker's life. Throws Error(kUsage) before attach.
  Handover& tasks();
  // Waits for the end of the worker's life. Throws Error if the job or this worker has failed.
  void wait_end();

 private:
  // A library has no signals and ends no process. It asks the worker once to leave.
  class Owner final : public WorkerOwner {
   public:
    void stop() { stop_.store(true); }
    int take_signal() override { return stop_.exchange(false) ? SIGTERM : 0; }
    void end_now(int /*code*/) override {}

   private:
    std::atomic<bool> stop_ = false;
  };

  void live(const WorkerOptions& options, const PeerPort& port);
  Computation wait_attached(const Job& job);
  void note_end(const JobEnd& end);

  Owner owner_;
  Handover handover_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // guarded by mutex_
  std::optional<Job> job_;
  std::optional<ExternalSpec> spec_;
  std::optional<JobEnd> end_;
  bool stopping_ = false;

  std::jthread thread_;  // last: it ends before the members that it uses
};

}  // namespace pushpull
