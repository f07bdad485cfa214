#include "ps/coordinator/run_totals.h"

#include <algorithm>
#include <cmath>

namespace pushpull {

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
  rejected_frames += stats.rejected_frames();
  clock_gap_max = std::max(clock_gap_max, stats.clock_gap_max());
}

RunTotals::Split RunTotals::mean_split() const {
  if (tasks == 0) return {};
  const auto n = static_cast<double>(tasks);
  return {split.compute / n, split.push / n, split.wait / n, split.pull / n};
}

}  // namespace pushpull
