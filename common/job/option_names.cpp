// Names of the optimizers and schedules in a job file.
#include <array>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/update/optimizer_options.h"
#include "common/update/schedule.h"

namespace pushpull {
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

}  // namespace pushpull
