// A folder of checkpoints: DIR/step-00000040/{model.safetensors, optimizer.safetensors,
// ema.safetensors if the job averages its weights, tokenizer.json if the data are text, state.json,
// DONE}. A checkpoint is written under a temporary name, fsynced and renamed, with DONE last; the
// newest `keep` are kept. Used by the coordinator's writer thread, `pushpull eval` and `pushpull
// generate`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/io/run_counts.h"
#include "common/layout/tensor_table.h"

namespace pushpull {

inline constexpr uint64_t kMaxTokenizerBytes = uint64_t{12} << 20;

// The job's state at a step boundary: includes every update of steps < step, and none of a later
// step.
struct CheckpointState {
  int64_t step = 0;         // next step of the sampler
  int64_t updates = 0;      // updates applied to each slice (Adam's t)
  int64_t total_steps = 0;  // horizon of the schedule
  std::string job_ini;      // the resolved job
  std::string data_digest;
  std::string numerics;  // the workers' instruction set and libraries
  std::string choices;   // GPU workers' choice of algorithms; "" if there are none
  // The file tokenizer.json; "" if the data are no text. At most kMaxTokenizerBytes.
  std::string tokenizer = {};
  // The run that wrote it, and that run's counts up to here. Empty in checkpoints of older
  // programs.
  std::string run = {};
  std::string initial_weights_sha256 = {};
  RunCounts counts = {};
  EvaluationRecord evaluation = {};  // up to here; without a measure if the job follows none
};

struct Checkpoint {
  CheckpointState state;
  TensorTable table;                      // names and shapes as read; update rules are not stored
  std::vector<float> weights;             // table.total floats, canonical order
  std::vector<std::vector<float>> slots;  // optimizer state vectors, table.total floats each
  std::vector<std::string> slot_names;
  std::string path;  // the step-... folder that was read
  // Why read_checkpoint skipped newer checkpoints of a store: one line each, to log.
  std::vector<std::string> skipped;
};

class CheckpointStore {
 public:
  // Creates the folder if needed and removes temporary folders of earlier runs.
  //   keep: checkpoints to keep, >= 1.
  //   keep_runs: stores of earlier runs to keep.
  // Throws Error(kIo) naming the folder.
  CheckpointStore(std::string dir, int64_t keep, int64_t keep_runs = 0);

  // Writes one checkpoint and blocks until it is on disk. Then deletes the oldest ones beyond
  // `keep`, counting only steps up to this one: if the run resumed from an earlier step, later
  // checkpoints stay until they are overwritten.
  //   slots: optimizer state in the order of slot_names, table.total floats each (entries of
  //     kAverage tensors are not written). That of kEmaName goes to a file of its own.
  // Throws Error(kIo) naming file and reason; no incomplete checkpoint remains under a final name.
  // Programs ignore SIGXFSZ, which would otherwise kill them at a file size limit before this
  // error.
  void write(const CheckpointState& state, const TensorTable& table, std::span<const float> weights,
             std::span<const std::span<const float>> slots,
             std::span<const std::string> slot_names);

  // Writes a checkpoint to the store DIR/best as `write` does, and then deletes the others there.
  void write_best(const CheckpointState& state, const TensorTable& table,
                  std::span<const float> weights, std::span<const std::span<const float>> slots,
                  std::span<const std::string> slot_names) const;

  // Returns the steps of the complete checkpoints, ascending.
  std::vector<int64_t> steps() const;

  // Moves the folder with an earlier run's checkpoints to DIR.1, after a DIR.1 to DIR.2 and so on. A
  // fresh run calls this for its own default folder. The first successful `write` deletes DIR.N with N
  // above keep_runs. Returns the new path, or "" if there were no checkpoints. Throws Error(kIo).
  std::string set_earlier_aside();
  // Makes the first successful `write` delete stores, as after set_earlier_aside. For a restarted
  // process that called set_earlier_aside in an earlier life and has written no checkpoint since.
  void expect_earlier_aside() { earlier_is_aside_ = true; }

 private:
  std::string dir_;
  int64_t keep_;
  int64_t keep_runs_;
  bool earlier_is_aside_ = false;
};

// Reads a checkpoint after verifying every file against its checksum.
//   path: a store or one step-... folder. Of a store the newest undamaged checkpoint is read;
//     `skipped` names newer damaged ones.
// Throws Error(kData) naming path and reason; if all checkpoints of a store are damaged, those of
// each.
Checkpoint read_checkpoint(const std::string& path);

// Returns the newest undamaged checkpoint in the folder with a state that `fits`, or nullopt.
//   skipped: set to the reasons why damaged ones were skipped, one line each, to log; also if there
//     is no result.
// Throws Error(kData) if the folder cannot be listed.
std::optional<Checkpoint> find_checkpoint(
    const std::string& dir, const std::function<bool(const CheckpointState& state)>& fits,
    std::vector<std::string>& skipped);

struct InitialWeights {
  std::vector<float> weights;        // table.total floats
  std::vector<std::string> missing;  // tensors of the table that the file lacks
  std::vector<std::string> unused;   // tensors of the file that the table lacks
};

// Reads initial weights only, from a .safetensors file.
//   drawn: values for tensors that the file lacks, table.total floats. Empty: the file must have
//     exactly the table's tensors.
// Throws Error(kData) naming file and tensor if one is of another shape or not finite, or missing or
// unknown without `drawn`; and if the file has no tensor of the table.
InitialWeights read_initial_weights(const std::string& path, const TensorTable& table,
                                    std::vector<float> drawn = {});

// Returns the SHA-256 of the bytes in lower-case hexadecimal.
std::string sha256_hex(std::span<const std::byte> bytes);

// File and folder names inside a checkpoint store, shared by its writer and its reader. Any thread.
//
//   step-00000040          a checkpoint; complete once it contains DONE
//   .tmp-step-00000040-7   process 7 is writing it
//   .old-step-00000040-7   moved aside while its replacement takes the name; still valid if the
//                          replacement never arrived
//   .del-step-00000040-7   being deleted
//   best                   a store of its own, with the checkpoint of the best evaluation
// Beside it: STORE.1, STORE.2, ...: earlier runs' stores, the last one first.
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kEmaFile = "ema.safetensors";       // the slot kEmaName, as kModelFile
inline constexpr const char* kTokenizerFile = "tokenizer.json";  // absent if the data are no text
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kBestFolder = "best";
inline constexpr const char* kDoneFile = "DONE";  // holds the SHA-256 of state.json

// Returns the name of one tensor's part of a slot: "fc.weight.exp_avg".
std::string slot_tensor_name(const std::string& tensor, const std::string& slot);

// Return "step-00000040", and the step of such a name (nullopt for any other name).
std::string step_folder_name(int64_t step);
std::optional<int64_t> step_of_folder(const std::string& name);

// Returns the step of ".old-step-00000040-7" for prefix ".old-", or nullopt for any other name.
std::optional<int64_t> step_of_aside(const std::string& name, const std::string& prefix);

// Returns the paths of the checkpoints with DONE, by step. A checkpoint that was moved aside counts
// if its replacement is absent. Throws Error(kData) if the folder cannot be listed.
std::map<int64_t, std::string> whole_checkpoints(const std::string& dir);

// Returns the paths of DIR.1, DIR.2, ..., to which checkpoints of earlier runs were moved, by number. Throws
// Error(kData) if the parent folder of DIR cannot be listed.
std::map<uint64_t, std::string> folders_aside(const std::string& dir);

}  // namespace pushpull
