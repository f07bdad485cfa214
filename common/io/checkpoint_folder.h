// Names inside a checkpoint store, shared by its writer and its reader. Any thread.
//   step-00000040          a checkpoint; whole once DONE is in it
//   .tmp-step-00000040-7   being written by process 7
//   .old-step-00000040-7   moved away while its replacement takes the name; still good if that
//                          never happened
//   .del-step-00000040-7   being deleted
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace pushpull {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kDoneFile = "DONE";  // holds the SHA-256 of state.json

// Name of a slot's part for one tensor: "fc.weight.exp_avg".
std::string slot_tensor_name(const std::string& tensor, const std::string& slot);

// "step-00000040", and back; nothing for any other name.
std::string step_folder_name(int64_t step);
std::optional<int64_t> step_of_folder(const std::string& name);

// The step of ".old-step-00000040-7" for prefix ".old-"; nothing for any other name.
std::optional<int64_t> step_of_aside(const std::string& name, const std::string& prefix);

// Paths of the checkpoints that have DONE, by step. One that was moved away counts where its
// replacement is absent. Throws Error(kData) where the folder cannot be listed.
std::map<int64_t, std::string> whole_checkpoints(const std::string& dir);

}  // namespace pushpull
