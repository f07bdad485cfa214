// The worker's connection to the coordinator, on a thread of its own, so that heartbeats go on
// while the trainer computes: what `WorkerMember` decides, put on a socket. The trainer's thread
// reads the newest state and posts messages; everything else is the control thread's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/keys/keys.h"
#include "common/net/endpoint.h"
#include "common/net/zap_handler.h"
#include "worker/member/worker_member.h"
#include "worker/trace/activity.h"
#include "worker/trace/time_split.h"

namespace pushpull {

class Control {
 public:
  // Takes the socket over: nobody else may use it from now on. Joins the job of the coordinator
  // that it reaches. `signals` is polled here.
  Control(std::unique_ptr<Dealer> dealer, const JoinOptions& options, SignalFd& signals,
          Keys keys = {});
  // Sends what is still to be said and ends the thread.
  ~Control();

  // ---- the trainer's thread ----
  // Waits until this worker has joined. False: it has not, and end() says why.
  bool wait_joined();
  // Valid once joined; they stay as they are.
  const Job& job() const { return member_.job(); }
  uint64_t incarnation() const { return member_.incarnation(); }
  // The worker takes part in the newest term from now on, and declares for it. Returns its run.
  uint64_t enter_term();
  // Of the job's first term: what its data connections go by.
  uint64_t first_run() const { return first_run_; }
  const Keys& keys() const { return keys_; }
  // What to show to the servers of the job. Once a term has been entered.
  Credentials data_credentials() const {
    return keys_.data_credentials(job().encrypt_data, first_run_);
  }
  // Address where the coordinator was joined.
  const std::string& address() const { return address_; }
  // Repeated until the coordinator has taken it in.
  void declare(wire::Declare declare);
  void report(wire::EvalResult result);
  // The push that is being computed cannot be: said in the last words.
  void note_failed(wire::Applied push);
  // Reported by the next heartbeats.
  Activity& activity() { return activity_; }
  void set_times(const TimeTotals& times);
  // Payload bytes that went to other workers and came from them, and messages of strangers.
  void set_traffic(int64_t sent, int64_t received, int64_t rejected);
  // Reports whom `handler` does not let in. It ends with this.
  void report_refused(std::shared_ptr<ZapHandler> handler);
  // That one; null: none yet.
  const std::shared_ptr<ZapHandler>& handler() const { return handler_; }
  // The last words: finished (code 0) or why not. Call once, before the end.
  void leave(int code, const std::string& text);

  // The newest state of the term that the worker takes part in, empty before the first.
  std::optional<wire::State> state() const;
  // Of that state. A heartbeat that tells the coordinator of it goes out no sooner than this is seen.
  int64_t state_version() const { return state_version_.load(std::memory_order_acquire); }
  // Set once the job is over, in whatever way, or the term is.
  std::optional<JobEnd> end() const;
  bool over() const { return over_.load(std::memory_order_relaxed); }
  // This worker cannot go on: somebody does not answer. Waits until the coordinator has said why.
  // False: it has not, though it lives.
  bool wait_for_reason();
  // Readable when the state or the end is new; clear it before reading them.
  WakeFd& news() { return news_; }

 private:
  void loop(const std::stop_token& stop);
  void turn();
  void send_all();
  void note_news();
  bool term_over() const { return run_ != 0 && run_ != member_.run(); }
  wire::Stats stats() const;

  const std::string address_;
  const Keys keys_;
  std::unique_ptr<Dealer> dealer_;
  SignalFd& signals_;
  WakeFd news_;
  WakeFd posted_;
  std::atomic<bool> over_ = false;
  std::atomic<int64_t> state_version_ = -1;
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> bytes_received_ = 0;
  std::atomic<int64_t> peers_rejected_ = 0;
  Activity activity_{now_ms};

  uint64_t first_run_ = 0;  // the trainer's thread only

  // guarded by mutex_
  mutable std::mutex mutex_;
  WorkerMember member_;
  uint64_t run_ = 0;  // of the term that the trainer's thread takes part in; 0: of none yet
  TimeTotals times_;
  AwakeClock clock_;
  std::shared_ptr<ZapHandler> handler_;  // of the port that other workers reach; null: none

  // control thread only
  int64_t news_version_ = -1;  // the state that the trainer was woken for
  bool news_joined_ = false;

  std::jthread thread_;  // last: ends before what it uses
};

}  // namespace pushpull
