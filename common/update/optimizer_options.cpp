#include "common/update/optimizer_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/layout/tensor_table.h"

namespace pushpull {

// Names of the optimizers and schedules in a job file.

namespace {

template <class Kind, size_t n>
using Names = std::array<std::pair<Kind, const char*>, n>;

constexpr Names<OptimizerKind, 5> kOptimizers = {{{OptimizerKind::kSgd, "sgd"},
                                                  {OptimizerKind::kMomentum, "momentum"},
                                                  {OptimizerKind::kNesterov, "nesterov"},
                                                  {OptimizerKind::kAdam, "adam"},
                                                  {OptimizerKind::kAdamW, "adamw"}}};

constexpr Names<ScheduleKind, 4> kSchedules = {{{ScheduleKind::kConstant, "constant"},
                                                {ScheduleKind::kStep, "step"},
                                                {ScheduleKind::kCosine, "cosine"},
                                                {ScheduleKind::kLinear, "linear"}}};

template <class Kind, size_t n>
Kind parse_name(const Names<Kind, n>& names, const std::string& text, const std::string& what,
                const std::string& expected) {
  for (const auto& [kind, name] : names) {
    if (text == name) return kind;
  }
  throw Error(ErrorCode::kUsage,
              "[job] unknown " + what + " '" + printable(text) + "': must be " + expected);
}

template <class Kind, size_t n>
std::string name_of(const Names<Kind, n>& names, Kind kind) {
  for (const auto& [known, name] : names) {
    if (known == kind) return name;
  }
  PP_ASSERT(!"kind has a name");
  return "";
}

}  // namespace

OptimizerKind parse_optimizer(const std::string& text) {
  return parse_name(kOptimizers, text, "optimizer", "sgd, momentum, nesterov, adam or adamw");
}

std::string to_string(OptimizerKind kind) { return name_of(kOptimizers, kind); }

ScheduleKind parse_schedule(const std::string& text) {
  return parse_name(kSchedules, text, "lr-schedule", "constant, step, cosine or linear");
}

std::string to_string(ScheduleKind kind) { return name_of(kSchedules, kind); }

namespace {

// Returns lr * gamma^drops by squaring, with the same bits on every processor.
double drop(double lr, double gamma, int64_t drops) {
  double factor = 1.0;
  for (; drops > 0; drops /= 2) {
    if (drops % 2 == 1) factor *= gamma;
    gamma *= gamma;
  }
  return lr * factor;
}

double cosine(double lr, double min, int64_t step, int64_t horizon) {
  if (step >= horizon) return min;
  const double progress = static_cast<double>(step) / static_cast<double>(horizon);
  // The last bit of cos may differ between processors; the optimizer's rounding to float hides it.
  return min + (lr - min) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

double linear(double lr, double min, int64_t step, int64_t horizon) {
  if (step >= horizon) return min;
  return min + (lr - min) * (static_cast<double>(horizon - step) / static_cast<double>(horizon));
}

int64_t warmup_of(const ScheduleOptions& options, int64_t total_steps) {
  if (options.warmup_fraction <= 0.0) return std::max<int64_t>(options.warmup_steps, 0);
  return static_cast<int64_t>(static_cast<double>(total_steps) * options.warmup_fraction);
}

}  // namespace

double learning_rate(const ScheduleOptions& options, int64_t step, int64_t total_steps) {
  PP_ASSERT(step >= 0);
  const int64_t warmup = warmup_of(options, total_steps);
  if (step < warmup) {
    return options.lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  switch (options.kind) {
    case ScheduleKind::kConstant:
      return options.lr;
    case ScheduleKind::kStep:
      PP_ASSERT(options.step > 0);
      return drop(options.lr, options.gamma, (step - warmup) / options.step);
    case ScheduleKind::kCosine:
      return cosine(options.lr, options.min, step - warmup, total_steps - warmup);
    case ScheduleKind::kLinear:
      return linear(options.lr, options.min, step - warmup, total_steps - warmup);
  }
  PP_ASSERT(!"a schedule of the enumeration");
  return options.lr;
}

NoDecay NoDecay::parse(const std::string& text) {
  if (text == "model") return {};
  NoDecay out;
  out.patterns.emplace();
  if (text.empty() || text == "none") return out;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string pattern(trim(std::string_view(text).substr(begin, end - begin)));
    if (!is_name_pattern(pattern)) {
      throw Error(ErrorCode::kUsage, "[job] no-decay '" + printable(text) +
                                         "' must be model, none, or PATTERN,..., as *.bias,*norm*");
    }
    out.patterns->push_back(pattern);
    begin = end + 1;
  }
  return out;
}

std::string NoDecay::to_string() const {
  if (!patterns) return "model";
  if (patterns->empty()) return "none";
  std::string out;
  for (const std::string& pattern : *patterns) out += (out.empty() ? "" : ",") + pattern;
  return out;
}

bool NoDecay::contains(const TensorInfo& tensor) const {
  if (!patterns) return !tensor.decay;
  return std::ranges::any_of(
      *patterns, [&](const std::string& pattern) { return name_fits(pattern, tensor.name); });
}

const std::vector<std::string>& state_names(OptimizerKind kind) {
  static const std::vector<std::string> of_sgd;
  static const std::vector<std::string> of_momentum = {"momentum_buffer"};
  static const std::vector<std::string> of_adam = {"exp_avg", "exp_avg_sq"};
  switch (kind) {
    case OptimizerKind::kSgd:
      return of_sgd;
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
      return of_momentum;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return of_adam;
  }
  PP_ASSERT(!"an optimizer of the enumeration");
  return of_sgd;
}

}  // namespace pushpull
