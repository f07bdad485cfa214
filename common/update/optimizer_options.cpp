#include "common/update/optimizer_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numbers>
#include <optional>
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

constexpr Names<OptimizerKind, 9> kOptimizers = {{{OptimizerKind::kSgd, "sgd"},
                                                  {OptimizerKind::kMomentum, "momentum"},
                                                  {OptimizerKind::kNesterov, "nesterov"},
                                                  {OptimizerKind::kAdam, "adam"},
                                                  {OptimizerKind::kAdamW, "adamw"},
                                                  {OptimizerKind::kRmsprop, "rmsprop"},
                                                  {OptimizerKind::kAdagrad, "adagrad"},
                                                  {OptimizerKind::kLion, "lion"},
                                                  {OptimizerKind::kLamb, "lamb"}}};

constexpr Names<ScheduleKind, 9> kSchedules = {{{ScheduleKind::kConstant, "constant"},
                                                {ScheduleKind::kStep, "step"},
                                                {ScheduleKind::kCosine, "cosine"},
                                                {ScheduleKind::kLinear, "linear"},
                                                {ScheduleKind::kMultistep, "multistep"},
                                                {ScheduleKind::kOneCycle, "onecycle"},
                                                {ScheduleKind::kInverseSqrt, "inverse-sqrt"},
                                                {ScheduleKind::kPoints, "points"},
                                                {ScheduleKind::kExternal, "external"}}};

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
  return parse_name(kOptimizers, text, "optimizer",
                    "sgd, momentum, nesterov, adam, adamw, rmsprop, adagrad, lion or lamb");
}

std::string to_string(OptimizerKind kind) { return name_of(kOptimizers, kind); }

bool scales_by_tensor(OptimizerKind kind) { return kind == OptimizerKind::kLamb; }

ScheduleKind parse_schedule(const std::string& text) {
  return parse_name(kSchedules, text, "lr-schedule",
                    "constant, step, cosine, linear, multistep, onecycle, inverse-sqrt, points or "
                    "external");
}

std::string to_string(ScheduleKind kind) { return name_of(kSchedules, kind); }

namespace {

constexpr int64_t kMaxStep = 1'000'000'000'000;

// Returns the parts of a list between commas; none for "none" and an empty text.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  if (text.empty() || text == "none") return parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(trim(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

bool follows(std::optional<int64_t> step, int64_t earlier) {
  return step && *step > earlier && *step <= kMaxStep;
}

}  // namespace

std::vector<int64_t> parse_milestones(const std::string& text) {
  std::vector<int64_t> milestones;
  for (const std::string& part : parts_of(text)) {
    const auto step = parse_int64(part);
    if (!follows(step, milestones.empty() ? 0 : milestones.back())) {
      throw Error(ErrorCode::kUsage, "[job] lr-milestones '" + printable(text) +
                                         "' must be rising steps between commas, such as 300,600");
    }
    milestones.push_back(*step);
  }
  return milestones;
}

std::string to_string(const std::vector<int64_t>& milestones) {
  std::string out;
  for (const int64_t step : milestones) out += (out.empty() ? "" : ",") + std::to_string(step);
  return out.empty() ? "none" : out;
}

std::vector<RatePoint> parse_points(const std::string& text) {
  std::vector<RatePoint> points;
  for (const std::string& part : parts_of(text)) {
    const size_t colon = std::min(part.find(':'), part.size());
    const auto step = parse_int64(part.substr(0, colon));
    const auto rate = parse_real(colon < part.size() ? part.substr(colon + 1) : "");
    if (!follows(step, points.empty() ? -1 : points.back().step) || !rate || *rate < 0.0) {
      throw Error(ErrorCode::kUsage,
                  "[job] lr-points '" + printable(text) +
                      "' must be STEP:RATE,... with rising steps and rates >= 0, "
                      "such as 0:0.0001,2000:0.001");
    }
    points.push_back({*step, *rate});
  }
  return points;
}

std::string to_string(const std::vector<RatePoint>& points) {
  std::string out;
  for (const RatePoint& point : points) {
    out += (out.empty() ? "" : ",") + std::to_string(point.step) + ":" + print_real(point.rate);
  }
  return out.empty() ? "none" : out;
}

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

// HF's time scale without a warm-up.
constexpr int64_t kTimescale = 10'000;

double inverse_sqrt(double lr, int64_t step, int64_t warmup) {
  const auto scale = static_cast<double>(warmup > 0 ? warmup : kTimescale);
  return lr / std::sqrt((static_cast<double>(step) + scale) / scale);
}

double on_points(const std::vector<RatePoint>& points, int64_t step) {
  PP_ASSERT(!points.empty());
  const auto next = std::ranges::upper_bound(points, step, {}, &RatePoint::step);
  if (next == points.begin()) return next->rate;
  const RatePoint& before = *std::prev(next);
  if (next == points.end()) return before.rate;
  const double part =
      static_cast<double>(step - before.step) / static_cast<double>(next->step - before.step);
  return before.rate + (next->rate - before.rate) * part;
}

// Returns the rate between two, along half a cosine.
double half_cosine(double from, double to, double part) {
  return to + (from - to) / 2.0 * (std::cos(std::numbers::pi * part) + 1.0);
}

// The phases of torch's OneCycleLR end at steps that need not be whole.
double one_cycle(const ScheduleOptions& o, int64_t step, int64_t length) {
  constexpr double kTorchRise = 0.3;
  const auto all = static_cast<double>(length);
  const double fraction = o.warmup_fraction > 0.0 ? o.warmup_fraction : kTorchRise;
  const double rise =
      (o.warmup_steps > 0 ? static_cast<double>(o.warmup_steps) : fraction * all) - 1.0;
  const auto at = static_cast<double>(step);
  if (rise > 0.0 && at <= rise) return half_cosine(o.warmup_from, o.lr, at / rise);
  const double end = all - 1.0;
  if (at >= end) return o.min;
  return half_cosine(o.lr, o.min, (at - std::max(rise, 0.0)) / (end - std::max(rise, 0.0)));
}

int64_t warmup_of(const ScheduleOptions& options, int64_t total_steps) {
  if (options.warmup_fraction <= 0.0) return std::max<int64_t>(options.warmup_steps, 0);
  return static_cast<int64_t>(static_cast<double>(total_steps) * options.warmup_fraction);
}

double deepspeed_rate(const ScheduleOptions& o, int64_t step, int64_t length) {
  const int64_t warmup = std::max<int64_t>(warmup_of(o, length), 2);
  const int64_t iteration = step - 1;
  if (iteration < 0) return o.kind == ScheduleKind::kCosine ? 0.0 : o.warmup_from;
  const auto at = static_cast<double>(iteration);
  if (iteration < warmup) {
    const auto n = static_cast<double>(warmup);
    const double part =
        o.warmup_shape == WarmupShape::kDeepSpeedLog ? std::log(at + 1.0) / std::log(n) : at / n;
    return o.warmup_from + (o.lr - o.warmup_from) * part;
  }
  const int64_t rest = std::max<int64_t>(length - warmup, 1);
  if (o.kind == ScheduleKind::kCosine) return cosine(o.lr, o.min, iteration - warmup + 1, rest);
  if (o.kind == ScheduleKind::kConstant) return o.lr;
  PP_ASSERT(o.kind == ScheduleKind::kLinear);
  return linear(o.lr, o.min, iteration - warmup, rest);
}

}  // namespace

double learning_rate(const ScheduleOptions& options, int64_t step, int64_t total_steps,
                     std::optional<double> said) {
  PP_ASSERT(step >= 0);
  if (options.kind == ScheduleKind::kExternal) return said.value_or(options.lr);
  if (options.horizon > 0) total_steps = options.horizon;
  if (options.kind == ScheduleKind::kPoints) return on_points(options.points, step);
  if (options.kind == ScheduleKind::kOneCycle) return one_cycle(options, step, total_steps);
  if (options.warmup_shape != WarmupShape::kLinear) {
    return deepspeed_rate(options, step, total_steps);
  }
  const int64_t warmup = warmup_of(options, total_steps);
  if (step < warmup) {
    const double rise = options.lr - options.warmup_from;
    return options.warmup_from + rise * static_cast<double>(step + 1) / static_cast<double>(warmup);
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
    case ScheduleKind::kMultistep:
      return drop(options.lr, options.gamma,
                  std::ranges::upper_bound(options.milestones, step) - options.milestones.begin());
    case ScheduleKind::kInverseSqrt:
      return inverse_sqrt(options.lr, step - warmup, warmup);
    case ScheduleKind::kOneCycle:
    case ScheduleKind::kPoints:
    case ScheduleKind::kExternal:
      break;
  }
  PP_ASSERT(!"a schedule of the enumeration");
  return options.lr;
}

NoDecay NoDecay::parse(const std::string& text) {
  if (text == "model") return {};
  NoDecay out;
  out.patterns = parts_of(text);
  for (const std::string& pattern : *out.patterns) {
    if (is_name_pattern(pattern)) continue;
    throw Error(ErrorCode::kUsage, "[job] no-decay '" + printable(text) +
                                       "' must be model, none, or PATTERN,..., as *.bias,*norm*");
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
  static const std::vector<std::string> of_rmsprop = {"square_avg"};
  static const std::vector<std::string> of_adagrad = {"sum"};
  static const std::vector<std::string> of_lion = {"exp_avg"};
  switch (kind) {
    case OptimizerKind::kSgd:
      return of_sgd;
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
      return of_momentum;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
    case OptimizerKind::kLamb:
      return of_adam;
    case OptimizerKind::kRmsprop:
      return of_rmsprop;
    case OptimizerKind::kAdagrad:
      return of_adagrad;
    case OptimizerKind::kLion:
      return of_lion;
  }
  PP_ASSERT(!"an optimizer of the enumeration");
  return of_sgd;
}

std::vector<std::string> state_names(const OptimizerOptions& options) {
  std::vector<std::string> names = state_names(options.kind);
  if (options.ema > 0.0) names.emplace_back(kEmaName);
  return names;
}

}  // namespace pushpull
