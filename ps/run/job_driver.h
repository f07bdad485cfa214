// Runs a job from its first member to its end, as a state machine between the `Coordinator` and the
// sockets and files of the first server's program. Starts each term of the job, has weights loaded
// and snapshots written (`Transfers`), and speaks for the server in its own process. Does no I/O
// and reads no clock: all effects go through `JobEffects`. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/net/intervals.h"
#include "common/net/refusals.h"
#include "ps/report/status_desk.h"
#include "ps/report/term_file.h"
#include "ps/report/transfer_watch.h"
#include "ps/run/coordinator.h"
#include "ps/run/job_effects.h"
#include "ps/run/run_ending.h"
#include "ps/run/run_summary.h"
#include "ps/run/term_start.h"
#include "ps/run/transfers.h"

namespace pushpull {

class ServedData;

class JobDriver {
 public:
  // Borrows data and effects.
  //   data: of the server in this process.
  //   history: of the run so far, if an earlier process of the coordinator began it.
  JobDriver(CoordinatorOptions options, double join_timeout_s, ServedData& data,
            JobEffects& effects, const RunHistory& history = {}, const StopOptions& stops = {});

  // ---- events ----
  // Handles a control message. Returns a refusal if it is invalid.
  Checked on_message(Now now, const PeerId& peer, const Message& message);
  // Handles a message on one of the data connections to servers. Returns false if it belongs to no
  // running transfer.
  bool on_shard_message(Now now, const Message& message) {
    return transfers_.on_message(now, message);
  }
  void on_written(Now now, const Written& written) {
    if (!transfers_.on_written(now, written)) ++history_.checkpoints_failed;
  }
  // Handles the end of work on files. Throws its error.
  void on_files(Now now, const FilesDone& done);
  // Notes that the caller, after the end of the job, has begun to close the files.
  void closes_files() { files_.begin(FileStep::kClose); }
  // Stops the job at the nearest consistent cut, with a checkpoint; before the first step, without
  // one. A checkpoint-signal only writes a checkpoint. Returns true if the process must end at once.
  bool on_signal(Now now, int signal);
  // Call after the server in this process has processed its messages.
  void on_data_taken(Now now) { summary_.note_barriers(now.ms, coordinator_->barriers()); }
  // Ends the job for all members because something in this process has failed.
  void fail(ErrorCode code, const std::string& reason) { coordinator_->fail_here(code, reason); }
  // Call last in each turn, and at least every 20 ms.
  void on_turn(Now now);

  // ---- queries ----
  // The coordinator of the running term; the next turn may replace it.
  const Coordinator& coordinator() const { return *coordinator_; }
  // Returns true while the server in this process takes part: until the job has failed.
  bool serves() const { return coordinator_->phase() != wire::PHASE_FAILED; }
  // Returns true while answers are due on the data connections to servers.
  bool waits_for_shards() const { return transfers_.busy(); }
  // Returns true if the caller may stop waiting: a server or the disk has made no progress for
  // progress-timeout, or the grace after a request to end is over.
  bool transfer_overdue(Now now) const {
    return stops_.request().overdue(now) || transfers_.overdue(now) || files_.overdue(now.awake_ms);
  }
  // Returns "server 0 has waited 12.0 s for the file system to ..." while it works on files.
  std::string file_text(Now now) const { return files_.text(now.awake_ms); }
  bool over() const { return coordinator_->over() || grace_over_; }
  int exit_code() const { return ending_.exit_code(*coordinator_); }
  // Returns true if the job stops without a cut of its own: the grace was over.
  bool gave_up_stop() const { return stops_.request().exit_code().has_value(); }
  // Returns why a finished job ends with code 8: its last checkpoint is not on disk. "" if it is.
  const std::string& end_failure() const { return transfers_.end_failure(); }
  // Returns the rank of a server that has not answered a transfer yet, or -1. For messages.
  int slow_shard() const { return transfers_.slow_shard(); }

 private:
  void tick(Now now);
  void tick_transfers(Now now);
  void advance_stops(Now now);
  void tell_hold(int64_t before);
  Checked on_other_term(Now now, const PeerId& peer, const Message& message);
  void send(Now now, const PeerId& to, Message message);
  void save_term();
  void begin_term(Now now);
  void start_if_ready(Now now);
  void start(Now now);
  void report_own(Now now);
  void pass_norms(Now now);
  void watch_files(Now now);
  void show_moments(Now now, bool last);
  void summarise(Now now);
  void publish_status(Now now);
  std::unique_ptr<StatusDesk> make_desk(int64_t began_ms = -1) const;
  void deliver(Now now);
  bool deliver_outgoing(Now now);
  bool deliver_here(const wire::Header& header);
  void notify_server_here(const wire::State& state);

  CoordinatorOptions options_;  // run, term and grant_key change with the term
  const double join_timeout_s_;
  ServedData& data_;
  JobEffects& effects_;
  RunHistory history_;
  std::unique_ptr<Coordinator> coordinator_;  // for the running term
  FileWatch files_;
  std::unique_ptr<TermStart> term_start_;  // for the running term
  RunSummary summary_;
  Transfers transfers_;
  std::unique_ptr<StatusDesk> desk_;  // for the running term
  Repeat tick_;
  PlannedStops stops_;
  bool grace_over_ = false;  // the job has ended, and waits no longer for members to leave
  RunEnding ending_{options_, stops_.request(), transfers_, files_, effects_};
};

}  // namespace pushpull
