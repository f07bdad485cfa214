#include "ps/coordinator/run_totals.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace pushpull {

namespace {

constexpr size_t kMostReasons = 64;
constexpr size_t kMostReasonBytes = 32;

// A member may say anything: lower-case words with hyphens are shown.
bool is_reason(const std::string& text) {
  return !text.empty() && text.size() <= kMostReasonBytes &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '-' || (c >= 'a' && c <= 'z'); });
}

}  // namespace

bool plausible(const wire::Stats& stats) {
  for (const double seconds : {stats.cpu_seconds(), stats.compute_seconds(), stats.push_seconds(),
                               stats.wait_seconds(), stats.pull_seconds()}) {
    if (!std::isfinite(seconds) || seconds < 0.0) return false;
  }
  const auto counts = {stats.peak_rss_kib(), stats.rejected_frames(), stats.bytes_pushed(),
                       stats.bytes_pulled(), stats.clock_gap_max(),   stats.computed()};
  return std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n >= 0; });
}

void RunTotals::add(wire::Role role, const wire::Stats& stats) {
  Role& of_role = role == wire::ROLE_SERVER ? servers : workers;
  of_role.cpu_seconds += stats.cpu_seconds();
  of_role.peak_rss_kib = std::max(of_role.peak_rss_kib, stats.peak_rss_kib());
  split.compute += stats.compute_seconds();
  split.push += stats.push_seconds();
  split.wait += stats.wait_seconds();
  split.pull += stats.pull_seconds();
  tasks += stats.computed();
  bytes_pushed += stats.bytes_pushed();
  bytes_pulled += stats.bytes_pulled();
  add_refusals(stats.rejected_frames(), stats.refusals());
  clock_gap_max = std::max(clock_gap_max, stats.clock_gap_max());
}

void RunTotals::add_refusals(int64_t rejected,
                             const google::protobuf::RepeatedPtrField<wire::Refusal>& reasons) {
  rejected_frames += rejected;
  for (const wire::Refusal& refusal : reasons) {
    const bool known = refusals.contains(refusal.reason());
    if (refusal.count() <= 0 || refusal.count() > rejected) continue;
    if (!is_reason(refusal.reason()) || (!known && refusals.size() >= kMostReasons)) continue;
    refusals[refusal.reason()] += refusal.count();
    rejected -= refusal.count();
  }
  if (rejected > 0) refusals["other"] += rejected;
}

RunTotals::Split RunTotals::mean_split() const {
  if (tasks == 0) return {};
  const auto n = static_cast<double>(tasks);
  return {split.compute / n, split.push / n, split.wait / n, split.pull / n};
}

}  // namespace pushpull
