#include "common/job/job.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/strict_number.h"
#include "common/base/text.h"
#include "common/job/job_keys.h"

namespace pushpull {
namespace {

constexpr int64_t kMaxParameter = 1'000'000;  // limit of S, B and H

// N of "word:N"; empty if `text` is anything else.
std::optional<int64_t> parameter(const std::string& text, std::string_view word) {
  if (!text.starts_with(word) || !text.substr(word.size()).starts_with(":")) return std::nullopt;
  const auto value = parse_int64(std::string_view(text).substr(word.size() + 1));
  if (!value || *value < 0 || *value > kMaxParameter) return std::nullopt;
  return value;
}

constexpr std::array<std::pair<const char*, AllReduceKind>, 3> kAllReduces = {
    {{"allreduce:tree", AllReduceKind::kTree},
     {"allreduce:ring", AllReduceKind::kRing},
     {"allreduce:gloo", AllReduceKind::kGloo}}};

}  // namespace

Strategy Strategy::parse(const std::string& text) {
  if (text == "sync") return {};
  if (text == "async") return {.kind = StrategyKind::kAsync};
  // a staleness bound of 0, or no backup worker, is sync
  if (const auto s = parameter(text, "ssp")) {
    return *s == 0 ? Strategy{} : Strategy{.kind = StrategyKind::kSsp, .staleness = *s};
  }
  if (const auto b = parameter(text, "backup")) {
    return *b == 0 ? Strategy{} : Strategy{.kind = StrategyKind::kBackup, .backups = *b};
  }
  if (const auto h = parameter(text, "local"); h && *h > 0) {
    return {.kind = StrategyKind::kLocal, .local_steps = *h};
  }
  for (const auto& [name, algorithm] : kAllReduces) {
    if (text == name) return {.kind = StrategyKind::kAllReduce, .algorithm = algorithm};
  }
  throw Error(ErrorCode::kUsage, "[job] unknown strategy '" + printable(text) + "': must be " +
                                     std::string(kStrategyWords));
}

std::string Strategy::to_string() const {
  switch (kind) {
    case StrategyKind::kSync:
      return "sync";
    case StrategyKind::kAsync:
      return "async";
    case StrategyKind::kSsp:
      return "ssp:" + std::to_string(staleness);
    case StrategyKind::kBackup:
      return "backup:" + std::to_string(backups);
    case StrategyKind::kLocal:
      return "local:" + std::to_string(local_steps);
    case StrategyKind::kAllReduce:
      for (const auto& [name, which] : kAllReduces) {
        if (algorithm == which) return name;
      }
  }
  PP_ASSERT(!"strategy has a name");
  return "";
}

Straggler Straggler::parse(const std::string& text) {
  if (text == "none") return {};
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const auto rank = parse_int64(text.substr(0, colon));
    const auto factor = parse_real(text.substr(colon + 1));
    const bool fits = rank && factor && *rank >= 0 && *rank < kMaxParameter && *factor >= 1.0 &&
                      *factor <= 1000.0;
    if (fits) return {*rank, *factor};
  }
  throw Error(ErrorCode::kUsage,
              "[job] straggler '" + printable(text) + "' must be " + std::string(kStragglerWords));
}

std::string Straggler::to_string() const {
  return rank < 0 ? "none" : std::to_string(rank) + ":" + print_real(factor);
}

std::string to_ini(const Job& job) {
  std::string out;
  for (const JobKey& key : job_key_table()) out += key.help.key + " = " + key.get(job) + "\n";
  return out;
}

int64_t steps_per_epoch(const Job& job, int64_t train_samples) {
  const int64_t used =
      job.train_samples > 0 ? std::min(job.train_samples, train_samples) : train_samples;
  return used / job.global_batch;
}

int64_t total_steps(const Job& job, int64_t train_samples) {
  return job.steps > 0 ? job.steps : job.epochs * steps_per_epoch(job, train_samples);
}

std::vector<std::string> keys_that_forbid_resume(const Job& before, const Job& now) {
  const bool stretched =
      before.schedule.kind == ScheduleKind::kCosine || now.schedule.kind == ScheduleKind::kCosine;
  std::vector<std::string> keys;
  for (const JobKey& key : job_key_table()) {
    const bool may_change = key.at_resume == AtResume::kMayChange ||
                            (key.at_resume == AtResume::kHorizon && !stretched);
    if (!may_change && key.get(before) != key.get(now)) keys.push_back(key.help.key);
  }
  return keys;
}

}  // namespace pushpull
