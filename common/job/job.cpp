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

constexpr int64_t kMaxRank = 1'000'000;

}  // namespace

int64_t Job::copy_distance() const {
  const StrategyTraits& traits = strategy.traits();
  const bool again = traits.step_versions && traits.whole_steps && !traits.workers_update;
  const bool kept = recovery == Recovery::kPeers && on_server_loss == OnServerLoss::kRestart;
  return again && kept ? copy_every : 0;
}

Straggler Straggler::parse(const std::string& text) {
  if (text == "none") return {};
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const auto rank = parse_int64(text.substr(0, colon));
    const auto factor = parse_real(text.substr(colon + 1));
    const bool fits =
        rank && factor && *rank >= 0 && *rank < kMaxRank && *factor >= 1.0 && *factor <= 1000.0;
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
  const bool stretched = before.schedule.depends_on_length() || now.schedule.depends_on_length();
  std::vector<std::string> keys;
  for (const JobKey& key : job_key_table()) {
    const bool may_change = key.at_resume == AtResume::kMayChange ||
                            (key.at_resume == AtResume::kHorizon && !stretched);
    if (!may_change && key.get(before) != key.get(now)) keys.push_back(key.help.key);
  }
  return keys;
}

}  // namespace pushpull
