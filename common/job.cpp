#include "common/job.h"

#include <algorithm>

#include "common/error.h"
#include "common/job_keys.h"
#include "common/strict_number.h"
#include "common/text.h"

namespace pushpull {
namespace {

constexpr int64_t kMaxStaleness = 1'000'000;

}  // namespace

Strategy Strategy::parse(const std::string& text) {
  if (text == "sync") return {};
  if (text == "async") return {StrategyKind::kAsync, 0};
  constexpr std::string_view kSsp = "ssp:";
  if (text.starts_with(kSsp)) {
    const auto staleness = parse_int64(std::string_view(text).substr(kSsp.size()));
    if (staleness == 0) return {};  // a bound of 0 clocks is sync (DESIGN P3)
    if (staleness > 0 && staleness <= kMaxStaleness) return {StrategyKind::kSsp, *staleness};
  }
  throw Error(ErrorCode::kUsage, "[job] unknown strategy '" + printable(text) +
                                     "': must be sync, async or ssp:S with S from 0 to " +
                                     std::to_string(kMaxStaleness));
}

std::string Strategy::to_string() const {
  switch (kind) {
    case StrategyKind::kSync:
      return "sync";
    case StrategyKind::kAsync:
      return "async";
    case StrategyKind::kSsp:
      return "ssp:" + std::to_string(staleness);
  }
  PP_ASSERT(!"strategy has a name");
  return "";
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
