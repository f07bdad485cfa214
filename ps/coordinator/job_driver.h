// Takes a job from its first member to its end, as a state machine: what the first server's program
// does between the `Coordinator` and its sockets and files. It starts the job, hands out loaded
// weights and fetches snapshots through a `ShardClient`, has checkpoints written, and speaks for
// the server in its own process. Knows no socket, thread, clock or file: what it makes happen goes
// through `JobEffects`. One thread.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/repeat.h"
#include "common/io/checkpoint.h"
#include "common/net/intervals.h"
#include "common/net/refusal.h"
#include "common/net/shard_client.h"
#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/progress.h"
#include "ps/coordinator/report.h"
#include "ps/coordinator/transfer_watch.h"
#include "ps/server/served_data.h"
#include "ps/status/status_desk.h"

namespace pushpull {

// Time of an event.
struct Now {
  int64_t ms = 0;        // of a clock that goes on while the process stands still: what people wait
  int64_t awake_ms = 0;  // of one that does not: how long others are silent
  int64_t utc_ms = 0;    // the time of day, since 1970
};

// The start of a run.
struct StartPoint {
  std::shared_ptr<const FlatState> weights;  // null: the init rules
  std::string choices;                       // of GPU algorithms; "": those declared
};

// Everything that the driver makes happen outside of itself. Where one throws, the caller of the
// driver ends the job with `fail`.
class JobEffects {
 public:
  virtual ~JobEffects() = default;
  // False: this connection is closed.
  virtual bool send(const PeerId& to, const Message& message) = 0;
  // To all servers, for weights, by rank; and a message to one of them.
  virtual void connect_shards(const std::vector<std::string>& endpoints) = 0;
  virtual void send_to_shard(int server, const Message& message) = 0;
  // Reads a checkpoint or initial weights.
  virtual StartPoint load_start(const Declaration& declaration) = 0;
  // The job has been set up, and trains from now on.
  virtual void started(const Coordinator& coordinator, const StartPoint& start) = 0;
  // Each ends with on_written; one at a time. hash: the result has the hash of the weights.
  virtual void hash_weights(GatheredState snapshot) = 0;
  virtual void write_checkpoint(GatheredState snapshot, CheckpointState state, bool hash) = 0;
  virtual void show_line(const std::string& line) = 0;
  virtual void show_moment(const Moment& moment) = 0;
  // The newest text of members.json.
  virtual void show_members(const std::string& json) = 0;
  // All is computed. The record of the run and its summary.
  virtual void write_summary(const Coordinator& coordinator, Summary summary) = 0;
};

// A snapshot that is hashed or on disk.
struct Written {
  int64_t step = 0;
  std::string weights_sha256;  // where it was asked for
  std::exception_ptr error;    // that kept it from being written
};

class JobDriver {
 public:
  // data: of the server in this process. Both borrowed.
  JobDriver(CoordinatorOptions options, double join_timeout_s, ServedData& data,
            JobEffects& effects);

  // ---- events ----
  // A control message, or why it was not taken.
  Checked on_message(Now now, const PeerId& peer, const Message& message);
  // From one of the connections for weights. False: likewise.
  bool on_shard_message(Now now, const Message& message);
  void on_written(Now now, const Written& written);
  // True: asked twice, the process must end at once.
  bool on_signal(Now now, int signal, const std::string& name);
  // The server in this process has taken in what came for it.
  void on_data_taken(Now now) { progress_.note_barriers(now.ms); }
  // Something in this process has failed: ends the job for everybody.
  void fail(ErrorCode code, const std::string& reason) { coordinator_.fail_here(code, reason); }
  // Last in each turn, and at least every 20 ms.
  void on_turn(Now now);

  // ---- queries ----
  const Coordinator& coordinator() const { return coordinator_; }
  // The server in this process takes part: not any more in a job that has failed.
  bool serves() const { return coordinator_.phase() != wire::PHASE_FAILED; }
  // There are answers to wait for on the connections for weights.
  bool waits_for_shards() const { return client_ && client_->busy(); }
  bool writing() const { return writing_; }
  // A server or the disk has made no progress for progress-timeout: the caller may stop waiting.
  bool transfer_overdue(Now now) const { return transfer_.overdue(now.awake_ms); }
  bool over() const { return coordinator_.over(); }
  int exit_code() const;
  // Server that has not answered for weights, for messages. -1: none.
  int slow_shard() const { return client_ ? client_->waiting_for() : -1; }

 private:
  void tick(Now now);
  void start(Now now);
  void exchange_with_shards(Now now);
  void take_snapshot(Now now, GatheredState snapshot);
  void request_snapshot(Now now);
  void watch_transfer(Now now);
  void note_transfer(Now now);
  void report_own(Now now);
  void pass_norms(Now now);
  void say_waiting(Now now);
  void show_moments(Now now, bool last);
  void summarise(Now now);
  void tell_status(Now now);
  void deliver(Now now);
  bool deliver_outgoing(Now now);
  bool deliver_here(const wire::Header& header);
  void say_notices();

  const CoordinatorOptions options_;
  const double join_timeout_s_;
  ServedData& data_;
  JobEffects& effects_;
  Coordinator coordinator_;
  Progress progress_;
  std::unique_ptr<ShardClient> client_;
  bool writing_ = false;       // a snapshot is fetched, hashed or written
  int64_t snapshot_step_ = 0;  // of that one
  TransferWatch transfer_;
  StatusDesk desk_;
  Repeat tick_;
  Repeat line_{kWaitingMs};  // for people who wait for members
  std::optional<int64_t> began_ms_;
  int signal_ = 0;
  int64_t signal_ms_ = 0;
};

}  // namespace pushpull
