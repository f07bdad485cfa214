#include "ps/members/measure.h"

#include <algorithm>
#include <string>

#include "common/base/error.h"
#include "common/job/job.h"

namespace pushpull {

namespace {

std::string word_of(Metric metric) {
  std::string word = to_string(metric);
  std::ranges::replace(word, ' ', '-');
  return word;
}

// Returns the index of the head that the rule names, or heads.size().
size_t head_of(const StopWhen& rule, const std::vector<HeadInfo>& heads) {
  if (rule.head.empty()) return 0;
  const auto found = std::ranges::find(heads, rule.head, &HeadInfo::name);
  return static_cast<size_t>(found - heads.begin());
}

}  // namespace

Measure measure_of(const Job& job, const std::vector<HeadInfo>& heads, int64_t test_samples) {
  const StopWhen& rule = job.stop_when;
  const std::string key =
      rule.on() ? "stop-when = " + rule.to_string() : std::string("checkpoint-best = true");
  if (test_samples == 0 || heads.empty()) {
    throw Error(ErrorCode::kUsage,
                "[job] " + key + " needs evaluations, but the " +
                    (heads.empty() ? "model measures nothing" : "data have no test samples"));
  }
  const size_t head = head_of(rule, heads);
  const bool is_loss = rule.metric == "loss";
  const bool is_own = rule.metric.empty() || rule.metric == "metric";
  if (head < heads.size() && (is_loss || is_own || rule.metric == word_of(heads[head].metric))) {
    return {head, is_loss, !is_loss && higher_is_better(heads[head].metric)};
  }
  std::string known;
  for (const HeadInfo& one : heads) {
    known.append(known.empty() ? "" : ", ").append(one.name).append("/loss, ");
    known.append(one.name).append("/").append(word_of(one.metric));
  }
  throw Error(ErrorCode::kUsage,
              "[job] " + key + ": model = " + job.model + " has no such measure; it has " + known);
}

}  // namespace pushpull
