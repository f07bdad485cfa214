// Assembles, hashes and writes snapshots on a `TaskThread`, so that neither copies nor a slow disk
// stop the server. Takes one snapshot at a time: hand in the next one after taking the result.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "common/base/task_thread.h"
#include "common/io/checkpoint.h"
#include "common/net/flat_state.h"

namespace pushpull {

// The place of a checkpoint, and whether its weights are hashed.
enum class CheckpointKind {
  kRolling,  // among the newest ones
  kLast,     // likewise, of the end of a run: hashed
  kBest,     // of the best evaluation, in a folder of its own
};

class CheckpointWriter {
 public:
  struct Result {
    int64_t step = 0;
    std::string weights_sha256;  // hash of all weights in canonical order, if asked for
    std::exception_ptr error;    // reason why it could not be written, or null
    CheckpointKind kind = CheckpointKind::kRolling;
  };

  CheckpointWriter(CheckpointStore store, TensorTable table, std::vector<std::string> slot_names);
  // Waits for the write in progress.
  ~CheckpointWriter();

  // The result of kLast includes the hash of the weights, which differs from any file's hash.
  void write(GatheredState snapshot, CheckpointState state, CheckpointKind kind);
  // Only hashes the weights.
  void hash(GatheredState snapshot);
  // Returns the result of `write` or `hash`, once. done_fd() becomes readable when there is one.
  std::optional<Result> take();
  int done_fd() const { return thread_.done_fd(); }
  // Returns true from a call of `write` or `hash` until its result is taken.
  bool busy() const { return thread_.busy(); }

 private:
  //   state: nothing if the weights are only hashed.
  void start(GatheredState snapshot, std::optional<CheckpointState> state, CheckpointKind kind);
  // The task. Fills in `result_`.
  void run(GatheredState gathered, const std::optional<CheckpointState>& state);

  CheckpointStore store_;
  const TensorTable table_;
  const std::vector<std::string> slot_names_;
  Result result_;  // of the task, which alone uses it until it has ended
  TaskThread thread_;
};

}  // namespace pushpull
