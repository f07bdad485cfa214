// The worker's connection to the coordinator: runs a WorkerMember over a socket, on its own thread,
// so that heartbeats continue while the trainer computes. The trainer's thread reads the newest
// state and posts messages; all else belongs to the control thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "common/base/console.h"
#include "common/base/process.h"
#include "common/net/endpoint.h"
#include "common/net/keys.h"
#include "common/net/zap_handler.h"
#include "worker/member/coordinator_link.h"
#include "worker/member/time_split.h"
#include "worker/member/worker_member.h"

namespace pushpull {

// The program or the library that a worker runs in. It owns what belongs to a process: its signals
// and its end.
//
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
  // Adds what the program around the worker has logged. Called at each heartbeat.
  virtual void add_logged(wire::Stats* /*stats*/) const {}
  // Returns the code of that reason: kStopped if the program does not fail, but needs no more of the job.
  virtual ErrorCode failure_code() const { return ErrorCode::kFailed; }

  // Called if the worker must end without waiting for its computation: after a second SIGINT, or,
  // once, if the computation did not stop in time. A program exits here, with this exit code. If the
  // call returns, the worker leaves as soon as its computation stops.
  virtual void end_now(int code) = 0;
};

class Control final : public CoordinatorLink {
 public:
  // Takes over the socket and joins the job of the coordinator at its other end. Borrows `owner`.
  Control(std::unique_ptr<Dealer> dealer, const JoinOptions& options, WorkerOwner& owner,
          Keys keys = {});
  // Sends pending messages and ends the thread.
  ~Control() override;

  // ---- the trainer's thread ----
  // Waits until this worker has joined. Returns false if it could not; end() then says why.
  bool wait_joined();
  // Valid once joined; constant from then on.
  const Job& job() const { return member_.job(); }
  int workers() const { return member_.workers(); }
  int rank() const { return member_.rank(); }
  uint64_t incarnation() const { return member_.incarnation(); }
  // Enters the newest term: declare() and state() refer to it from now on. Returns its id.
  uint64_t enter_term();
  // Returns the id of the entered term. Any thread.
  uint64_t term_id() const {
    const std::lock_guard lock(mutex_);
    return term_id_;
  }
  // Returns the id of the job's first term. Keys of data connections are derived from it.
  uint64_t run_id() const { return run_id_; }
  const Keys& keys() const { return keys_; }
  // Returns the credentials for the job's servers and workers; Credentials::to names one. Call
  // after enter_term.
  Credentials data_credentials() const {
    return keys_.data_credentials(job().encrypt_data, run_id_);
  }
  // Returns the address of the coordinator.
  const std::string& address() const { return address_; }
  // Posts a message, which is resent until the coordinator acknowledges it.
  void declare(wire::Declare declare);
  void report(wire::EvalResult result) override;
  // Offers initial weights to the coordinator, which may ask for them until this is called with
  // none. Borrows them.
  void offer_weights(std::span<const float> weights);
  void note_failed(wire::Applied push) override;
  Activity& activity() override { return activity_; }
  void set_times(const TimeTotals& times) override;
  void set_traffic(int64_t sent, int64_t received, int64_t rejected) override;
  // Keeps `handler` for all terms and logs the connections that it refuses.
  void report_refused(std::shared_ptr<ZapHandler> handler);
  // Returns that handler, or null before report_refused.
  const std::shared_ptr<ZapHandler>& handler() const { return handler_; }
  // Sends Leave: code 0 if this worker has finished, or else the error. Call once, at the end.
  void leave(int code, const std::string& text);

  // Returns the newest state of the entered term, or nothing before its first.
  std::optional<wire::State> state() const;
  // Returns that state's evaluated_barrier; -1 without a state.
  int64_t evaluated() const;
  // Returns the version of the coordinator's newest state. It is set before any heartbeat
  // acknowledges that state.
  int64_t state_version() const { return state_version_.load(std::memory_order_acquire); }
  // Refer to the entered term.
  std::optional<JobEnd> end() const override;
  bool over() const override { return over_.load(std::memory_order_relaxed); }
  // Waits, when a peer does not answer, until the coordinator says why. Returns false if the
  // coordinator is alive and has not said so after 5 s.
  bool wait_for_reason();
  // Readable when there is a new state or end, or after `wake`. Clear it before reading either.
  WakeFd& news() { return news_; }
  void wake() override { news_.wake(); }

 private:
  void loop(const std::stop_token& stop);
  void turn();
  void take_signal(int64_t now_ms);
  void end_late_stop(int64_t now_ms);
  void send_all();
  void note_news();
  bool term_over() const { return term_id_ != 0 && term_id_ != member_.term_id(); }
  wire::Stats stats() const;

  const std::string address_;
  const Keys keys_;
  std::unique_ptr<Dealer> dealer_;
  WorkerOwner& owner_;
  WakeFd news_;
  WakeFd posted_;
  std::atomic<bool> over_ = false;
  std::atomic<int64_t> state_version_ = -1;
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> bytes_received_ = 0;
  std::atomic<int64_t> peers_rejected_ = 0;
  Activity activity_{now_ms};

  uint64_t run_id_ = 0;  // trainer's thread only

  // guarded by mutex_
  mutable std::mutex mutex_;
  WorkerMember member_;
  uint64_t term_id_ = 0;  // of the entered term; 0 before the first
  TimeTotals times_;
  AwakeClock clock_;
  std::shared_ptr<ZapHandler> handler_;  // of the port that other workers connect to, or null

  // control thread only
  int64_t news_version_ = -1;  // newest state that has woken the trainer
  bool news_joined_ = false;
  bool stop_was_late_ = false;

  std::jthread thread_;  // last: joins before the members that it uses go
};

}  // namespace pushpull
