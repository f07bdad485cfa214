// A folder of checkpoints: DIR/step-00000040/{model.safetensors, optimizer.safetensors, state.json,
// DONE}. Written under a temporary name, fsynced, renamed; DONE last; the newest `keep` are kept.
// Used by the coordinator's writer thread and by `pushpull eval`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/layout/tensor_table.h"

namespace pushpull {

// The job's state at a step boundary: every update of steps < step is in, none of a later one.
struct CheckpointState {
  int64_t step = 0;         // sampler position: the next step
  int64_t updates = 0;      // updates that each slice has had (Adam's t)
  int64_t total_steps = 0;  // schedule horizon
  std::string job_ini;      // the resolved job
  std::string data_digest;
  std::string numerics;  // of the workers
  std::string choices;   // algorithms of GPU workers; "": none to choose
};

struct Checkpoint {
  CheckpointState state;
  TensorTable table;                      // names and shapes as read; rules are not stored
  std::vector<float> weights;             // table.total floats, canonical order
  std::vector<std::vector<float>> slots;  // optimizer state vectors, table.total floats each
  std::vector<std::string> slot_names;
  std::string path;                  // the step-... folder that was read
  std::vector<std::string> skipped;  // why newer ones of the store were not: a line each, to log
};

class CheckpointStore {
 public:
  // Creates the folder where needed; removes stale temporary folders of earlier runs. keep: >= 1.
  // Throws Error(kIo) naming it.
  CheckpointStore(std::string dir, int64_t keep);

  // slots: optimizer state in the order of slot_names, table.total floats each (entries of kAverage
  // tensors are not written). Blocks until it is on disk; then deletes the oldest beyond `keep`, of
  // those up to this step: what a run left that was taken back to an earlier step stays until it is
  // written anew.
  // Throws Error(kIo) naming file and reason; nothing torn stays behind under a final name.
  // Programs ignore SIGXFSZ, else a file size limit ends them before the error can.
  void write(const CheckpointState& state, const TensorTable& table, std::span<const float> weights,
             std::span<const std::span<const float>> slots,
             std::span<const std::string> slot_names);

  // Steps of the whole checkpoints, ascending.
  std::vector<int64_t> steps() const;

  // Deletes all checkpoints (a fresh run into its own default folder).
  void clear();

 private:
  std::string dir_;
  int64_t keep_;
};

// Reads a checkpoint. `path`: a store (its newest undamaged checkpoint is taken; newer damaged ones
// are told in `skipped`) or one step-... folder. Checks every file against its checksum first.
// Throws Error(kData) naming path and reason.
Checkpoint read_checkpoint(const std::string& path);

// Initial weights only: a .safetensors file with exactly the table's tensors. Returns table.total
// floats. Throws Error(kData) naming file and tensor: missing, unknown, other shape, not finite.
std::vector<float> read_initial_weights(const std::string& path, const TensorTable& table);

// Lower-case hex SHA-256 of the bytes.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace pushpull
