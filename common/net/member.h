// State machine of every member's connection to the coordinator: Hello until it is answered,
// heartbeats, the newest State, and how long the coordinator may be silent.
// Servers and workers put what is their own around it (ps/server/server_member.h,
// worker/member/worker_member.h). Knows no socket, thread or clock. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/repeat.h"
#include "common/job/job.h"
#include "common/net/intervals.h"
#include "common/net/job_view.h"
#include "common/net/join.h"
#include "common/net/message.h"

namespace pushpull {

// Why the job is over for this process.
struct JobEnd {
  bool success = false;
  ErrorCode code = ErrorCode::kFailed;
  std::string text;
  int signal = 0;          // that ended this process; 0: none
  bool next_term = false;  // only for a worker's computation: a new term of the job begins

  // Exit code of the program.
  int exit_code() const {
    return signal != 0 ? 128 + signal : success ? 0 : static_cast<int>(code);
  }
  // The job ended as somebody wished, with a checkpoint: no error of anybody.
  bool stopped() const { return !success && signal == 0 && code == ErrorCode::kStopped; }
};

class Member {
 public:
  // Meaning of a message for the owner of this.
  enum class News {
    kNone,    // nothing
    kJoined,  // the Hello has been answered
    kState,   // a newer State
    kTerm,    // a new term begins: what belongs to the old one is void, and the process joins anew
    kOther,   // an answer that is the owner's business
  };

  explicit Member(JoinOptions options)
      : options_(std::move(options)), joining_(std::in_place, options_, "") {}

  // Throws Error with the coordinator's code where it refuses this process, Error(kPeerLost) where
  // another run has taken the coordinator's place.
  News on_message(int64_t now_ms, const Message& message);
  // stats: of this process, asked for each heartbeat. Throws Error(kUnreachable) where nobody has
  // answered the Hello in time, Error(kPeerLost) where the coordinator has fallen silent, and has not
  // been restarted within replacement-timeout where the job waits for that.
  void on_tick(int64_t now_ms, const std::function<wire::Stats()>& stats);
  // This process was told to end: the coordinator hears of it at once, and says when it may.
  void told_to_end(int signal) {
    told_ = signal;
    heartbeat_.expire();
  }
  // Nothing comes from the coordinator, or it does not hear this process: another connection is to be
  // opened beside this one. True once, and again each time that this has not helped.
  bool needs_connection(int64_t now_ms);
  // Its Hello was answered, and the job is not over, as far as it knows. Who is told to end then keeps its
  // place until the coordinator lets it go: training may have started without its knowledge.
  bool takes_part() const {
    const bool over =
        state_.phase() == wire::PHASE_FINISHED || state_.phase() == wire::PHASE_FAILED;
    return is_known() && !over;
  }
  // A server that listens now: says Hello again, as a member to be.
  void join_as_server(const std::string& data_endpoint);
  void send(Message message);
  void say(std::string line) { notices_.push_back(std::move(line)); }
  // The last words. incarnation is set here; failed: the push that could not be computed.
  void leave(int code, const std::string& text,
             const std::optional<wire::Applied>& failed = std::nullopt);

  std::vector<Message> take_outgoing() { return std::exchange(outgoing_, {}); }
  // Lines for people.
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

  bool joined() const { return !joining_; }
  // The coordinator has been silent for longer than its heartbeats may be apart.
  bool misses_coordinator(int64_t now_ms) const { return silent_ms(now_ms) > lost_ms(); }
  uint64_t incarnation() const { return options_.incarnation; }
  const std::string& coordinator_address() const { return options_.coordinator; }
  // Valid once the first Hello has been answered; the run changes with the term.
  const Job& job() const { return job_; }
  uint64_t run() const { return text_.run(); }
  // Of the first term: the same for the whole life of a job.
  uint64_t first_run() const { return text_.first_run(); }
  // Of the term before; 0: there was none.
  uint64_t earlier_run() const { return earlier_run_; }
  JobView view() const { return {job_, text_.run(), options_.incarnation, state_}; }
  // The newest one; its version is -1 before the first.
  const wire::State& state() const { return state_; }

 private:
  static wire::State no_state();
  bool is_known() const { return text_.run() != 0; }
  News take_term(const wire::JobText& text);
  void check_silence(int64_t now_ms);
  int64_t silent_ms(int64_t now_ms) const { return now_ms - heard_ms_; }
  int64_t lost_ms() const { return static_cast<int64_t>(job_.heartbeat_timeout_s * 1000); }
  News take_state(const wire::State& state);
  void heartbeat(const wire::Stats& stats);

  const JoinOptions options_;
  std::optional<Joining> joining_;  // empty: has joined
  wire::JobText text_;
  uint64_t earlier_run_ = 0;
  Job job_;
  wire::State state_ = no_state();
  int64_t heard_ms_ = -1;  // or the first tick; -1: there was none
  bool silence_said_ = false;
  bool broken_said_ = false;
  int told_ = 0;  // signal
  Repeat heartbeat_{0};
  Repeat connection_{unheard_ms(job_.heartbeat_timeout_s)};  // another one is opened
  std::vector<Message> outgoing_;
  std::vector<std::string> notices_;
};

}  // namespace pushpull
