// File and folder names inside a checkpoint store, shared by its writer and its reader. Any thread.
//
//   step-00000040          a checkpoint; complete once it contains DONE
//   .tmp-step-00000040-7   process 7 is writing it
//   .old-step-00000040-7   moved aside while its replacement takes the name; still valid if the
//                          replacement never arrived
//   .del-step-00000040-7   being deleted
//   best                   a store of its own, with the checkpoint of the best evaluation
// Beside it: STORE.1, an earlier run's store that a fresh run moved aside.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
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

// Returns the paths of DIR.1, DIR.2, ..., to which checkpoints of earlier runs were moved. Throws
// Error(kData) if the parent folder of DIR cannot be listed.
std::vector<std::string> folders_aside(const std::string& dir);

}  // namespace pushpull
