// The settings of an optimizer and of its learning rate, and the names of its state.
// common/update/optimizer.h computes with them. Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

// Learning-rate schedules as pure functions of the step. Any thread.
// Sources: step = torch StepLR; cosine = torch CosineAnnealingLR without restarts (Loshchilov &
// Hutter, arXiv 1608.03983); linear = get_linear_schedule_with_warmup of Hugging Face's
// transformers; linear warm-up (Goyal et al., arXiv 1706.02677) before any of them.
enum class ScheduleKind { kConstant, kStep, kCosine, kLinear };

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kConstant;
  double lr = 0.1;     // after the warm-up
  int64_t step = 0;    // lr-step: steps between drops (kStep)
  double gamma = 0.1;  // lr-gamma: factor of each drop (kStep)
  double min = 0.0;    // lr-min: final rate (kCosine, kLinear)
  // The rate rises linearly from lr / n at step 0 to lr at step n - 1, the last of the warm-up's n
  // steps: warmup_steps, or the whole part of warmup_fraction times all steps if that is > 0.
  int64_t warmup_steps = 0;
  double warmup_fraction = 0.0;

  // Returns true if the rate of a step depends on the number of all steps.
  bool depends_on_length() const {
    return kind == ScheduleKind::kCosine || kind == ScheduleKind::kLinear || warmup_fraction > 0.0;
  }
  friend bool operator==(const ScheduleOptions&, const ScheduleOptions&) = default;
};

// Throws Error(kUsage) that quotes the text.
ScheduleKind parse_schedule(const std::string& text);
std::string to_string(ScheduleKind kind);

// Returns the rate at 0-based `step` of a job of `total_steps`. The schedule itself starts after
// the warm-up; cosine and linear reach `min` at total_steps.
double learning_rate(const ScheduleOptions& options, int64_t step, int64_t total_steps);

struct TensorInfo;

enum class OptimizerKind { kSgd, kMomentum, kNesterov, kAdam, kAdamW };

// The tensors that weight decay leaves out.
struct NoDecay {
  // Patterns of names (common/layout/tensor_table.h). Absent: the choice that the model declares.
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
