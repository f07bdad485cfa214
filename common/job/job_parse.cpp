// Turns settings into a job: later sources override earlier ones; checks every value, then
// combinations.
#include <map>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job.h"
#include "common/job/job_check.h"
#include "common/job/job_keys.h"
#include "common/job/job_sources.h"

namespace pushpull {
namespace {

void set_value(Job& job, const JobKey& key, const Setting& given) {
  if (key.set(job, given.value)) return;
  throw Error(ErrorCode::kUsage, "[job] " + key.help.key + " = " + printable(given.value) + " (" +
                                     given.source + "): must be " + key.expects);
}

// Sets the defaults that depend on other keys.
void fill_in(Job& job, const Settings& given) {
  if (!given.contains("epochs") && job.steps == 0) job.epochs = 1;
  const StrategyTraits& traits = job.strategy.traits();
  const bool others_continue =
      traits.recordable ||
      (job.on_bad_gradient == OnBadGradient::kQuarantine && !traits.workers_update);
  if (!given.contains("on-worker-loss") && others_continue) {
    job.on_worker_loss = OnWorkerLoss::kContinue;
  }
}

Job resolve(const Settings& given) {
  Job job;
  for (const JobKey& key : job_key_table()) {
    const auto found = given.find(key.help.key);
    if (found != given.end()) set_value(job, key, found->second);
  }
  fill_in(job, given);
  check_combinations(job, given);
  return job;
}

void override_with(Settings& settings, Settings later) {
  later.merge(settings);  // keeps the entries already in `later`
  settings = std::move(later);
}

}  // namespace

Job parse_job(const std::string& path, const std::map<std::string, std::string>& flags) {
  Settings settings;
  if (!path.empty()) settings = settings_of_file(path);
  override_with(settings, settings_of_environment());
  override_with(settings, settings_of_flags(flags));
  return resolve(settings);
}

Job parse_job_text(const std::string& ini, const std::string& source) {
  return resolve(settings_of_text(ini, source));
}

}  // namespace pushpull
