// A worker inside another program: lives on a thread of its own, and hands its tasks to the caller's
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "client/external_model.h"
#include "client/handover.h"
#include "common/job/job.h"
#include "worker/training_work.h"
#include "worker/worker_life.h"

namespace pushpull {

// A place in the job's run.
struct TermPoint {
  uint64_t term = 0;       // id
  int64_t start = 0;       // first step
  int64_t checkpoint = 0;  // step of the newest one, or `start`
};

class Session {
 public:
  // Begins to join.
  Session(WorkerOptions options, PeerPort port);
  // Leaves the job early, unless it is over or the session has failed, and waits until the worker has left.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Waits until the worker has joined, at most for `timeout_ms` unless that is negative. Returns the
  // job, or nothing if there is none yet. Throws Error if the worker could not join, or if the job's
  // model is not external.
  std::optional<Job> wait_joined(int64_t timeout_ms);
  // Return the number of workers that the job was started for, and this one's rank, which it keeps. Call
  // once the worker has joined.
  int workers();
  int rank();
  // Declares the caller's model: `read` makes it for the job. Throws Error(kUsage) if the worker has
  // not joined or has a model, and as `read` does.
  void attach(const std::function<ExternalSpec(const Job& job)>& read);
  // Returns the tasks, which end with the worker's life. Throws Error(kUsage) before attach.
  Handover& tasks();
  // Returns the heads that the caller reports, which stay: those of its model, or none if it has a
  // stage that is not the last one. Throws Error(kUsage) before attach.
  std::span<const HeadInfo> heads();
  // Returns the rate of a step, or the one that holds now if the program says rates. Throws Error(kUsage) before attach.
  double learning_rate(int64_t step);
  // Returns the newest checkpoint at or before a step of the term, which must have begun; after the last step
  // that of the end. Also after the end.
  TermPoint point(int64_t step);
  // An evaluation that waits for the values of the heads with a formula.
  struct Totals {
    int64_t step = 0;
    NamedSums named;
  };
  // Returns true if some head has a formula.
  bool has_formulas() const { return has_formulas_; }
  // Returns the totals of an evaluation that waits, unless this worker has reported its values. Does not wait.
  std::optional<Totals> waiting_totals();
  // Reports values to the job. Throws Error(kUsage) unless there are as many as heads with a formula.
  void report_values(const Totals& of, std::span<const double> values);
  // Returns the newest State with the result of an evaluation, or an empty one. Also after the end.
  wire::State evaluated();
  // Waits for the end of the worker's life. Throws Error if the job or this worker has failed.
  void wait_end();

  // Makes the worker leave the job with this reason. All calls that wait or come later throw
  // Error(kFailed) with it. Does not wait. Any thread.
  void fail(const std::string& why);
  // Adds a value to those that the job shows by this name. Throws Error(kUsage) for a name that is none, or one too
  // many. Any thread.
  void log(const std::string& name, double value) { owner_.log(name, value); }

 private:
  // A library has no signals and ends no process.
  class Owner final : public WorkerOwner {
   public:
    // Keeps the first reason.
    void fail(const std::string& why, ErrorCode code);
    std::string failure() const override;
    ErrorCode failure_code() const override;
    void end_now(int /*code*/) override {}
    // Throws Error(kUsage) for a name that is none, and for one too many.
    void log(const std::string& name, double value);
    void add_logged(wire::Stats* stats) const override;

   private:
    struct Logged {
      double sum = 0.0;
      int64_t count = 0;
    };
    mutable std::mutex mutex_;
    // guarded by mutex_
    std::map<std::string, Logged> logged_;
    std::string failure_;
    ErrorCode code_ = ErrorCode::kFailed;
  };

  void end(const std::string& why, ErrorCode code);
  void live(const WorkerOptions& options, const PeerPort& port);
  Computation wait_attached(Control& control);
  void forget_control();
  void take_state();
  void note_end(const JobEnd& end);
  void check() const;

  Owner owner_;
  Handover handover_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // guarded by mutex_
  std::optional<Job> job_;
  Control* control_ = nullptr;  // while the worker lives and has joined
  int workers_ = 0;
  int rank_ = 0;
  wire::State training_;   // the newest one of a term that trains or has trained
  uint64_t term_ = 0;      // of training_
  int64_t version_ = -1;   // likewise, or of an older state
  wire::State evaluated_;  // the newest one with the result of an evaluation
  std::optional<ExternalSpec> spec_;
  std::optional<JobEnd> end_;
  std::atomic<bool> has_formulas_ = false;
  int64_t looked_at_ = -1;  // version of the newest State whose totals are known
  std::chrono::steady_clock::time_point looked_;

  std::jthread thread_;  // last: it ends before the members that it uses
};

}  // namespace pushpull
