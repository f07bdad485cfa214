// The settings of an optimizer and of its learning rate, and the names of its state.
// common/update/optimizer.h computes with them. Plain data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

// Learning-rate schedules as pure functions of the step. Any thread.
// Sources: step = torch StepLR; cosine = torch CosineAnnealingLR without restarts (Loshchilov &
// Hutter, arXiv 1608.03983); linear = get_linear_schedule_with_warmup of Hugging Face's
// transformers; multistep = torch MultiStepLR; onecycle = torch OneCycleLR with two phases (Smith &
// Topin, arXiv 1708.07120); inverse-sqrt = get_inverse_sqrt_schedule of transformers (Vaswani et
// al., arXiv 1706.03762); points = lines between given rates; external = what the workers' program
// says. Linear warm-up (Goyal et al., arXiv 1706.02677) before all but onecycle, which has its own,
// points and external.
enum class ScheduleKind {
  kConstant,
  kStep,
  kCosine,
  kLinear,
  kMultistep,
  kOneCycle,
  kInverseSqrt,
  kPoints,
  kExternal
};

// kDeepSpeedLog, kDeepSpeedLinear: the warm-up, and the constant, linear or cosine rate after it, of
// WarmupLR, WarmupDecayLR and WarmupCosineLR in DeepSpeed (deepspeed/runtime/lr_schedules.py). Step t
// has the rate of their iteration t - 1, and step 0 that of a scheduler that has not begun.
enum class WarmupShape { kLinear, kDeepSpeedLog, kDeepSpeedLinear };

// A rate of ScheduleKind::kPoints.
struct RatePoint {
  int64_t step;  // from 0
  double rate;
  friend bool operator==(const RatePoint&, const RatePoint&) = default;
};

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kConstant;
  double lr = 0.1;     // after the warm-up
  int64_t step = 0;    // lr-step: steps between drops (kStep)
  double gamma = 0.1;  // lr-gamma: factor of each drop (kStep, kMultistep)
  double min = 0.0;    // lr-min: final rate (kCosine, kLinear, kOneCycle)
  // The rate rises linearly from warmup_from (exclusive) to lr at step n - 1, the last of the warm-up's
  // n steps: warmup_steps, or the whole part of warmup_fraction times all steps if that is > 0.
  // kOneCycle: it rises by a cosine from warmup_from at step 0; 0.3 of all steps if neither is set.
  int64_t warmup_steps = 0;
  double warmup_fraction = 0.0;
  double warmup_from = 0.0;
  WarmupShape warmup_shape = WarmupShape::kLinear;
  int64_t horizon = 0;                // lr-horizon: counts as the number of all steps; 0: the job's
  std::vector<int64_t> milestones{};  // steps of the drops, rising (kMultistep)
  std::vector<RatePoint> points{};    // by rising step (kPoints); the first and last rate go on

  // Returns true if kind falls to `min` at the end of all steps.
  bool falls_to_min() const {
    return kind == ScheduleKind::kCosine || kind == ScheduleKind::kLinear ||
           kind == ScheduleKind::kOneCycle;
  }
  // Returns true if the rate of a step depends on the number of the job's steps.
  bool depends_on_length() const {
    return horizon == 0 && (falls_to_min() || warmup_fraction > 0.0);
  }
  friend bool operator==(const ScheduleOptions&, const ScheduleOptions&) = default;
};

// Throws Error(kUsage) that quotes the text.
ScheduleKind parse_schedule(const std::string& text);
std::string to_string(ScheduleKind kind);

// Read and print milestones "300,600" and points "0:1e-4,2000:1e-3"; "none": there are none. The
// readers throw Error(kUsage) that quotes the text.
std::vector<int64_t> parse_milestones(const std::string& text);
std::string to_string(const std::vector<int64_t>& milestones);
std::vector<RatePoint> parse_points(const std::string& text);
std::string to_string(const std::vector<RatePoint>& points);

// Returns the rate at 0-based `step` of a job of `total_steps`. The schedule itself starts after
// the warm-up; cosine and linear reach `min` at total_steps. Milestones are steps of the job.
//   said: by the workers' program; it counts under kExternal. Nothing: lr.
double learning_rate(const ScheduleOptions& options, int64_t step, int64_t total_steps,
                     std::optional<double> said = {});

struct TensorInfo;

enum class OptimizerKind {
  kSgd,
  kMomentum,
  kNesterov,
  kAdam,
  kAdamW,
  kRmsprop,
  kAdagrad,
  kLion,
  kLamb
};

// Returns true if norms over a whole tensor scale its update (common/update/trust_ratio.h).
bool scales_by_tensor(OptimizerKind kind);

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
  double beta1 = 0.9;         // adam, adamw, lion, lamb
  double beta2 = 0.999;       // adam, adamw, lamb, rmsprop (0.99 in a job), lion (0.99)
  double epsilon = 1e-8;      // adam, adamw, rmsprop, adagrad (1e-10 in a job), lamb (1e-6)
  double weight_decay = 0.0;  // L2 in the gradient; decoupled in adamw, lion and lamb
  NoDecay no_decay{};         // RangeUpdate gives these tensors no weight decay
  // Decay of the exponential moving average of the weights; 0: there is none. After each update it is
  // ema e + (1 - ema) w, and after the first one w, as in torch's AveragedModel.
  double ema = 0.0;

  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

// Throws Error(kUsage) that quotes the text.
OptimizerKind parse_optimizer(const std::string& text);
std::string to_string(OptimizerKind kind);

// Returns the names of the state vectors, as in PyTorch: {}, {"momentum_buffer"}, {"exp_avg",
// "exp_avg_sq"} also of lamb, {"square_avg"} of rmsprop, {"sum"} of adagrad, {"exp_avg"} of lion.
const std::vector<std::string>& state_names(OptimizerKind kind);
// Returns the same, and kEmaName behind them if the weights are averaged.
std::vector<std::string> state_names(const OptimizerOptions& options);
inline constexpr size_t kMaxStateVectors = 3;

}  // namespace pushpull
