// The worker's connection to the coordinator, on a thread of its own, so that heartbeats go on
// while the trainer computes. The trainer's thread reads the newest state and posts messages;
// everything else is the control thread's.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/net/endpoint.h"
#include "worker/trace/time_split.h"

namespace pushpull {

struct ControlOptions {
  uint64_t incarnation = 0;
  double heartbeat_timeout_s = 10.0;
  std::string coordinator;  // "server 0 (host, pid 12)", for messages
};

// Why the job is over for this worker.
struct JobEnd {
  bool success = false;
  ErrorCode code = ErrorCode::kFailed;
  std::string text;
  int signal = 0;  // that ended this process; 0: none
};

class Control {
 public:
  // Takes the socket over: nobody else may use it from now on. `signals` is polled here.
  Control(std::unique_ptr<Dealer> dealer, ControlOptions options, SignalFd& signals);
  // Sends what is still to be said and ends the thread.
  ~Control();

  // ---- the trainer's thread ----
  // Where the coordinator was joined.
  const std::string& address() const { return address_; }
  // Repeated until the coordinator has taken it in.
  void declare(wire::Declare declare);
  void report(wire::EvalResult result);
  // The push that is being computed cannot be: said in the last words.
  void note_failed(wire::Applied push);
  // What the next heartbeats say.
  void set_times(const TimeTotals& times);
  // Payload bytes that went to other workers and came from them, and messages of strangers.
  void set_traffic(int64_t sent, int64_t received, int64_t rejected);
  // The last words: finished (code 0) or why not. Call once, before the end.
  void leave(int code, const std::string& text);

  // The newest state, empty before the first.
  std::optional<wire::State> state() const;
  // Set once the job is over, in whatever way.
  std::optional<JobEnd> end() const;
  bool over() const { return over_.load(std::memory_order_relaxed); }
  // Readable when the state or the end is new; clear it before reading them.
  WakeFd& news() { return news_; }

 private:
  void loop(const std::stop_token& stop);
  void take_message(const Message& message, int64_t now_ms);
  void take_state(const wire::State& state);
  void send_due(int64_t now_ms);
  void finish(JobEnd end);

  const ControlOptions options_;
  const std::string address_;
  std::unique_ptr<Dealer> dealer_;
  SignalFd& signals_;
  WakeFd news_;
  WakeFd posted_;
  std::atomic<bool> over_ = false;
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> bytes_received_ = 0;
  std::atomic<int64_t> peers_rejected_ = 0;

  // guarded by mutex_
  mutable std::mutex mutex_;
  std::optional<wire::State> state_;
  std::optional<JobEnd> end_;
  std::optional<wire::Declare> declare_;
  bool declared_ = false;                        // the coordinator has it
  std::map<int64_t, wire::EvalResult> results_;  // not taken yet
  std::optional<wire::Leave> leave_;
  std::optional<wire::Applied> failed_;
  TimeTotals times_;
  int64_t next_result_ = 1;
  bool post_ = false;  // something is new to send

  // control thread only, times by clock_
  AwakeClock clock_;
  int64_t heard_ms_ = 0;
  int64_t heartbeat_ms_ = 0;
  int64_t repeat_ms_ = 0;
  int64_t over_since_ms_ = -1;
  bool heartbeat_now_ = false;

  std::jthread thread_;  // last: ends before what it uses
};

}  // namespace pushpull
