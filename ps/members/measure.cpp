#include "ps/members/measure.h"

#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/job/job.h"

namespace pushpull {

Measure measure_of(const Job& job, const std::vector<HeadInfo>& heads, int64_t test_samples) {
  const StopWhen& rule = job.stop_when;
  const std::string key =
      rule.on() ? "stop-when = " + rule.to_string() : std::string("checkpoint-best = true");
  if (test_samples == 0 || heads.empty()) {
    throw Error(ErrorCode::kUsage,
                "[job] " + key + " needs evaluations, but the " +
                    (heads.empty() ? "model measures nothing" : "data have no test samples"));
  }
  if (const std::optional<Measure> measure = find_measure(rule.name, heads)) return *measure;
  throw Error(ErrorCode::kUsage, "[job] " + key + ": model = " + job.model +
                                     " has no such measure; it has " + measures_of(heads));
}

}  // namespace pushpull
