// What the coordinator's machines make happen outside of themselves: messages, files, lines for
// people. The program gives it; a test plays it. The coordinator's thread.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "common/io/checkpoint.h"
#include "common/net/shard_client.h"
#include "ps/coordinator/coordinator.h"
#include "ps/files/report.h"
#include "ps/files/run_history.h"

namespace pushpull {

// Time of an event.
struct Now {
  int64_t ms = 0;        // of a clock that goes on while the process stands still: what people wait
  int64_t awake_ms = 0;  // of one that does not: how long others are silent
  int64_t utc_ms = 0;    // the time of day, since 1970
};

// Where a term starts.
struct StartPoint {
  std::shared_ptr<const FlatState> weights;  // null: the init rules
  std::string choices = {};                  // of GPU algorithms; "": those declared
  // Of the run so far, where the weights are from a checkpoint that it has written itself.
  RunCounts counts = {};
  bool resumed = false;  // from a checkpoint
  std::string initial_weights_sha256 = {};
};

// What nobody else may guess of a term.
struct TermIds {
  uint64_t run = 0;
  std::string grant_key;
};

// Everything that the driver makes happen outside of itself. Where one throws, the caller of the
// driver ends the job with `fail`.
class JobEffects {
 public:
  virtual ~JobEffects() = default;
  // False: this connection is closed.
  virtual bool send(const PeerId& to, const Message& message) = 0;
  // A server is lost, and a new term begins. What is returned is used once it is durable that the term
  // has begun.
  virtual TermIds begin_term(int64_t term, const RunHistory& history) = 0;
  // To all servers, for weights, by rank, in the place of earlier ones; and a message to one of them.
  virtual void connect_shards(const std::vector<DataPort>& ports) = 0;
  virtual void send_to_shard(int server, const Message& message) = 0;
  // Reads a checkpoint or initial weights.
  virtual StartPoint load_start(const Declaration& declaration) = 0;
  // The term has been set up, and trains from now on.
  virtual void started(const Coordinator& coordinator, const StartPoint& start,
                       const RunHistory& history) = 0;
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

}  // namespace pushpull
