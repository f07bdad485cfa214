// The settings of an optimizer and the names of its state. common/update/optimizer.h computes with
// them. Plain data; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pushpull {

struct TensorInfo;

enum class OptimizerKind { kSgd, kMomentum, kNesterov, kAdam, kAdamW };

// The tensors that weight decay leaves out.
struct NoDecay {
  // Patterns of names (common/layout/name_pattern.h). Absent: the choice that the model declares.
  std::optional<std::vector<std::string>> patterns;

  // Reads "model", "none" (also an empty text) or patterns such as "*.bias,*norm*". Throws
  // Error(kUsage) that quotes the text.
  static NoDecay parse(const std::string& text);
  std::string to_string() const;
  bool contains(const TensorInfo& tensor) const;
  friend bool operator==(const NoDecay&, const NoDecay&) = default;
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0.9;      // momentum, nesterov
  double beta1 = 0.9;         // adam, adamw
  double beta2 = 0.999;       // adam, adamw
  double epsilon = 1e-8;      // adam, adamw
  double weight_decay = 0.0;  // L2 in the gradient; decoupled in adamw
  NoDecay no_decay{};         // RangeUpdate gives these tensors no weight decay

  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

// Throws Error(kUsage) that quotes the text.
OptimizerKind parse_optimizer(const std::string& text);
std::string to_string(OptimizerKind kind);

// Returns the names of the state vectors, as in PyTorch: {}, {"momentum_buffer"}, {"exp_avg",
// "exp_avg_sq"}.
const std::vector<std::string>& state_names(OptimizerKind kind);

}  // namespace pushpull
