// The tensors of a model in canonical order, and their offsets in the flat parameter vector. Built
// by the first worker (or `pushpull eval`), sent to the coordinator and frozen there. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pushpull {

// The name of the averaged weights (the key `ema`) among the state vectors of a model.
inline constexpr const char* kEmaName = "ema";

// Patterns of tensor names in the values of job keys: '*' matches any characters. Any thread.

// Returns true if the text is a pattern: one or more letters, digits, '.', '_', '-' and '*'.
bool is_name_pattern(const std::string& text);

// Returns true if the pattern matches the whole name.
bool name_fits(std::string_view pattern, std::string_view name);

// Returns why a tensor cannot have this name in messages, in checkpoints and in results, or "": a name is UTF-8 without
// control characters, of 1 to 1024 bytes, and not one that the format of checkpoints has reserved.
std::string tensor_name_mistake(const std::string& name);

// How the servers update a tensor.
enum class UpdateRule {
  kOptimizer,  // trainable: the job's optimizer
  kAverage,    // BatchNorm running statistic: running = (1 - m) running + m mean(reported)
};

// How the servers initialise a tensor before step 0. Element i of tensor t is a pure function of
// (seed, t, i), so any server can fill any range.
enum class InitKind {
  kConstant,  // every element is `value`
  kUniform,   // U(-value, value), as PyTorch's nn.Linear and nn.Conv2d with value = 1/sqrt(fan_in)
  kNormal,    // N(0, value^2): mean 0, standard deviation `value`
};

// Elements that a model may have.
inline constexpr int64_t kMaxModelElements = int64_t{1} << 36;

struct TensorInfo {
  std::string name;            // PyTorch's state_dict name: "layer1.0.weight"
  std::vector<int64_t> shape;  // C order
  UpdateRule rule = UpdateRule::kOptimizer;
  InitKind init = InitKind::kConstant;
  float value = 0.0F;             // constant, bound or standard deviation
  float average_momentum = 0.1F;  // m of kAverage
  bool decay = true;              // weight decay applies, unless the job's no-decay decides
  double lr_scale = 1.0;          // factor of the learning rate
  // In place of the job's weight-decay and its no-decay.
  std::optional<double> weight_decay = {};
  bool begins_stage = false;  // of the model, where a group of workers divides it; not in the first
  int64_t offset = 0;         // index of the first element in the flat vector
  int64_t size = 0;           // elements: product of shape

  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

struct TensorTable {
  std::vector<TensorInfo> tensors;
  int64_t total = 0;  // elements of the flat vector

  // Appends a tensor: sets its offset and size and grows `total`.
  void add(TensorInfo info);
  // Returns the elements of all kOptimizer tensors.
  int64_t trainable() const;
  // Returns the first element of each stage but the first.
  std::vector<int64_t> stage_begins() const;

  friend bool operator==(const TensorTable&, const TensorTable&) = default;
};

// Returns a shape for messages and tables: "[64, 3, 7, 7]", "[]" for a single number.
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace pushpull
