// The interface through which the coordinator's state machines act: messages, files, lines for
// users. The program implements it; tests fake it. Used by the coordinator's thread.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/io/checkpoint.h"
#include "common/net/flat_state.h"
#include "ps/members/declarations.h"
#include "ps/members/ended_run.h"
#include "ps/members/membership.h"
#include "ps/report/checkpoint_writer.h"
#include "ps/report/member_document.h"
#include "ps/report/run_figures.h"
#include "ps/report/term_file.h"
#include "ps/run/stop_options.h"

namespace pushpull {

// The state that a term starts with.
struct StartPoint {
  std::shared_ptr<const FlatState> weights;  // null for the init rules
  std::string choices = {};                  // GPU algorithms; "" for those declared
  // Counts of the run so far, if the weights are from one of its own checkpoints.
  RunCounts counts = {};
  bool resumed = false;  // from a checkpoint
  std::string initial_weights_sha256 = {};
  EvaluationRecord evaluation = {};      // of the checkpoint that the weights are from
  std::vector<std::string> drawn = {};   // tensors that init-from lacks
  std::vector<std::string> unused = {};  // tensors of init-from that the model lacks
};

// Secrets of a term that other processes must not be able to guess.
struct TermIds {
  uint64_t term_id = 0;
  std::string grant_key;
};

// All effects of the driver. If one throws, the caller of the driver ends the job with `fail`.
class JobEffects {
 public:
  virtual ~JobEffects() = default;
  // Returns false if the connection is closed.
  virtual bool send(const PeerId& to, const Message& message) = 0;
  // Begins a new term after the loss of a server; save_term has ended. Returns its ids.
  virtual TermIds begin_term(int64_t term) = 0;
  // Connects to all servers' data ports, by rank, and replaces earlier connections.
  // send_to_shard sends on one of them.
  virtual void connect_shards(const std::vector<DataPort>& ports) = 0;
  virtual void send_to_shard(int server, const Message& message) = 0;
  // Called when the term is set up and starts to train at `start_step`.
  virtual void started(const Declaration& declaration, int64_t start_step) = 0;
  // Each of these five begins work on files that ends with on_files. One at a time.
  // Reads a checkpoint or initial weights.
  virtual void load_start(const Declaration& declaration) = 0;
  // Replaces the files of an earlier run by those of this one, and saves the term.
  virtual void open_files(const Declaration& declaration, const StartPoint& start,
                          const RunHistory& history) = 0;
  // Saves, durably, that the next term begins after the loss of a server.
  virtual void save_term(int64_t term, const RunHistory& history) = 0;
  // Saves, durably, how the run ends. An error is shown and ends nothing.
  virtual void save_end(const RunEnd& end) = 0;
  // Writes the record of the run and its summary. Called when everything is computed.
  virtual void write_summary(RunFigures summary) = 0;
  // Returns what this work waits for: "the file system to write out/term.json".
  virtual std::string file_wait() const = 0;
  // Returns a number that grows while this work goes on.
  virtual int64_t file_bytes() const = 0;
  // Each of these two ends with on_written. One at a time. Also kLast hashes the weights.
  virtual void hash_weights(GatheredState snapshot) = 0;
  virtual void write_checkpoint(GatheredState snapshot, CheckpointState state,
                                CheckpointKind kind) = 0;
  // The coordinator has given up these members, and the job goes on: the processes may be killed and
  // replaced.
  virtual void members_lost(const std::vector<MemberInfo>& members) = 0;
  virtual void show_line(const std::string& line) = 0;
  virtual void show_moment(const RunFigures& moment) = 0;
  // Shows the newest text of members.json.
  virtual void show_members(const std::string& json) = 0;
  // Renews the members and the figures that the program shows on request: at least once a second, at
  // most at each tick. Borrows both for the call.
  virtual void show_status(const MembersView& view, const RunFigures& figures) = 0;
};

// The outcome for a snapshot that was hashed or written.
struct Written {
  int64_t step = 0;
  std::string weights_sha256;  // if it was asked for
  std::exception_ptr error;    // why it could not be written
  CheckpointKind kind = CheckpointKind::kRolling;
};

// The outcome of work on files.
struct FilesDone {
  std::exception_ptr error = nullptr;
  std::optional<StartPoint> start = {};  // of load_start
};

}  // namespace pushpull
