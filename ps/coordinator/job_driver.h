// Takes a job from its first member to its end, as a state machine: what the first server's program
// does between the `Coordinator` and its sockets and files. It starts each term of the job, has weights
// loaded and snapshots written (`Transfers`), and speaks for the server in its own process. Knows no socket, thread, clock or file: what it makes happen goes
// through `JobEffects`. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/end_request.h"
#include "common/base/repeat.h"
#include "common/net/intervals.h"
#include "common/net/refusal.h"
#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/job_effects.h"
#include "ps/coordinator/progress.h"
#include "ps/coordinator/transfers.h"
#include "ps/files/run_history.h"
#include "ps/members/gathering.h"
#include "ps/status/status_desk.h"

namespace pushpull {

class ServedData;

class JobDriver {
 public:
  // data: of the server in this process. Both borrowed. history: of a run that goes on in a later
  // term, after an earlier life of this process.
  JobDriver(CoordinatorOptions options, double join_timeout_s, ServedData& data,
            JobEffects& effects, const RunHistory& history = {});

  // ---- events ----
  // A control message, or why it was not taken.
  Checked on_message(Now now, const PeerId& peer, const Message& message);
  // From one of the connections for weights. False: likewise.
  bool on_shard_message(Now now, const Message& message) {
    return transfers_.on_message(now, message);
  }
  void on_written(Now now, const Written& written) {
    if (!transfers_.on_written(now, *coordinator_, written)) ++history_.checkpoints_failed;
  }
  // The job stops at the nearest consistent cut, with a checkpoint; before the first step, without any. True:
  // the process must end at once.
  bool on_signal(Now now, int signal);
  // The server in this process has taken in what came for it.
  void on_data_taken(Now now) { progress_.note_barriers(now.ms); }
  // Something in this process has failed: ends the job for everybody.
  void fail(ErrorCode code, const std::string& reason) { coordinator_->fail_here(code, reason); }
  // Last in each turn, and at least every 20 ms.
  void on_turn(Now now);

  // ---- queries ----
  // Of the running term: another one after the next turn.
  const Coordinator& coordinator() const { return *coordinator_; }
  // The server in this process takes part: not any more in a job that has failed.
  bool serves() const { return coordinator_->phase() != wire::PHASE_FAILED; }
  // There are answers to wait for on the connections for weights.
  bool waits_for_shards() const { return transfers_.busy(); }
  bool writing() const { return transfers_.writing(); }
  // A server or the disk has made no progress for progress-timeout, or the process was told to end and the
  // grace is over: the caller may stop waiting.
  bool transfer_overdue(Now now) const { return end_.overdue(now.ms) || transfers_.overdue(now); }
  bool over() const { return coordinator_->over(); }
  int exit_code() const;
  // Why a job that is done ends with code 8: its last checkpoint is not on disk. "": it is.
  const std::string& end_failure() const { return transfers_.end_failure(); }
  // Server that has not answered for weights, for messages. -1: none.
  int slow_shard() const { return transfers_.slow_shard(); }

 private:
  void tick(Now now);
  void stop(Now now);
  std::string stop_cause() const;
  Checked on_other_term(Now now, const PeerId& peer, const Message& message);
  void send(Now now, const PeerId& to, Message message);
  void begin_term(Now now);
  bool ready(Now now);
  void start(Now now);
  void note_start(const StartPoint& point);
  void report_own(Now now);
  void pass_norms(Now now);
  void say_waiting(Now now);
  void show_moments(Now now, bool last);
  void summarise(Now now);
  void tell_status(Now now);
  std::unique_ptr<StatusDesk> make_desk() const;
  void deliver(Now now);
  bool deliver_outgoing(Now now);
  bool deliver_here(const wire::Header& header);
  void tell_server_here(const wire::State& state);
  void say_notices();

  CoordinatorOptions options_;  // run, term and grant_key change with the term
  const double join_timeout_s_;
  ServedData& data_;
  JobEffects& effects_;
  RunHistory history_;
  std::unique_ptr<Coordinator> coordinator_;  // of the running term
  std::unique_ptr<Gathering> gathering_;      // of the running term
  Progress progress_;
  Transfers transfers_;
  std::unique_ptr<StatusDesk> desk_;  // of the running term
  Repeat tick_;
  EndRequest end_;
  bool stop_said_ = false;
  bool ended_by_signal_ = false;  // without a checkpoint
};

}  // namespace pushpull
