// State machine of every member's connection to the coordinator: Hello until it is answered,
// heartbeats, the newest State, and how long the coordinator may be silent. Servers and workers add
// their own parts around it (ps/server/server_member.h, worker/member/worker_member.h). Does no
// I/O, starts no thread and reads no clock. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "common/net/intervals.h"
#include "common/net/join.h"
#include "common/net/message.h"

namespace pushpull {

// Why the job is over for this process.
struct JobEnd {
  bool success = false;
  ErrorCode code = ErrorCode::kFailed;
  std::string text;
  int signal = 0;          // that ended this process; 0 if there is none
  bool next_term = false;  // only for a worker's computation: a new term of the job begins

  // Returns the exit code of the program.
  int exit_code() const {
    return signal != 0 ? 128 + signal : success ? 0 : static_cast<int>(code);
  }
  // Returns true if a user stopped the job at a checkpoint, which is not an error.
  bool stopped() const { return !success && signal == 0 && code == ErrorCode::kStopped; }
};

class Member {
 public:
  // The meaning of a message for the owner of this object.
  enum class News {
    kNone,    // nothing
    kJoined,  // the Hello has been answered
    kState,   // a newer State
    kTerm,    // a new term begins: the old one's state is void, and the process rejoins
    kOther,   // an answer for the owner to handle
  };

  explicit Member(JoinOptions options)
      : options_(std::move(options)), joining_(std::in_place, options_, "") {}

  // Throws Error with the coordinator's code if it refuses this process, and Error(kPeerLost) if
  // another run has taken the coordinator's place.
  News on_message(int64_t now_ms, const Message& message);
  // stats: returns those of this process; called for each heartbeat. Throws Error(kUnreachable) if
  // no answer to the Hello comes in time. Throws Error(kPeerLost) if the coordinator has fallen
  // silent and, if the job waits for that, has not been restarted within replacement-timeout.
  void on_tick(int64_t now_ms, const std::function<wire::Stats()>& stats);
  // Records that `signal` tells this process to end. The coordinator is told at once and decides
  // when the process may end.
  void set_end_signal(int signal) {
    end_signal_ = signal;
    heartbeat_.expire();
  }
  // Records that the connection was closed. libzmq opens the next one; the next tick sends a
  // heartbeat on it.
  void on_closed(int64_t now_ms);
  // Returns true if no messages arrive from the coordinator, or it does not hear this process: the
  // owner must open another connection beside this one. The next tick then sends a heartbeat, since
  // the coordinator answers on a connection only once it has heard from it. Returns true again, at
  // intervals, if that has not helped.
  bool needs_connection(int64_t now_ms);
  // Returns whether the Hello was answered and, as far as this process knows, the job is not over.
  // A process that is told to end then keeps its place until the coordinator releases it: training
  // may have started without its knowledge.
  bool takes_part() const {
    const bool over =
        state_.phase() == wire::PHASE_FINISHED || state_.phase() == wire::PHASE_FAILED;
    return is_known() && !over;
  }
  // Sends Hello again, as a server that now listens at `data_endpoint`.
  void join_as_server(const std::string& data_endpoint);
  void send(Message message);
  void say(std::string line) { notices_.push_back(std::move(line)); }
  // Sends the last message of this process.
  //   failed: the push that could not be computed.
  void leave(int code, const std::string& text,
             const std::optional<wire::Applied>& failed = std::nullopt);

  std::vector<Message> take_outgoing() { return std::exchange(outgoing_, {}); }
  // Returns lines for users.
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

  bool joined() const { return !joining_; }
  // Returns the time since the coordinator's last message.
  int64_t silent_ms(int64_t now_ms) const { return now_ms - heard_ms_; }
  // Returns true if the coordinator has been silent for longer than heartbeat-timeout.
  bool misses_coordinator(int64_t now_ms) const { return silent_ms(now_ms) > lost_ms(); }
  uint64_t incarnation() const { return options_.incarnation; }
  // Valid once the first Hello has been answered; `term_id` changes with the term.
  const Job& job() const { return job_; }
  uint64_t term_id() const { return text_.term_id(); }
  // Returns the id of the first term, the same for the whole life of a job.
  uint64_t run_id() const { return text_.run_id(); }
  // Returns the number of workers that the job was started for.
  int workers() const { return text_.workers(); }
  // Returns the rank of this worker, which it keeps for its whole life: the coordinator prefers it when it
  // assigns ranks, but may give the place of a lost worker to a spare.
  int rank() const { return options_.wanted_rank; }
  // Returns the id of the previous term, or 0 if there was none.
  uint64_t earlier_term_id() const { return earlier_term_id_; }
  JobView view() const { return {job_, text_.term_id(), options_.incarnation, state_}; }
  // Returns the newest state; its version is -1 before the first.
  const wire::State& state() const { return state_; }

 private:
  static wire::State no_state();
  bool is_known() const { return text_.term_id() != 0; }
  News take_term(const wire::JobText& text);
  bool is_silent(int64_t now_ms) const;
  void check_silence(int64_t now_ms);
  int64_t lost_ms() const { return static_cast<int64_t>(job_.heartbeat_timeout_s * 1000); }
  News take_state(const wire::State& state);
  void heartbeat(const wire::Stats& stats);

  JoinOptions options_;             // wanted_rank is that of the first answer, from then on
  std::optional<Joining> joining_;  // empty once the process has joined
  wire::JobText text_;
  uint64_t earlier_term_id_ = 0;
  Job job_;
  wire::State state_ = no_state();
  std::optional<int64_t> closed_ms_;  // time the connection was closed; empty if one works
  int64_t heard_ms_ = -1;  // time of the last message, or of the first tick; -1 before it
  bool silence_logged_ = false;
  bool broken_logged_ = false;
  int end_signal_ = 0;  // signal that told this process to end; 0 = none
  Repeat heartbeat_{0};
  Repeat connection_{unheard_ms(job_.heartbeat_timeout_s)};  // when to open another connection
  std::vector<Message> outgoing_;
  std::vector<std::string> notices_;
};

}  // namespace pushpull
