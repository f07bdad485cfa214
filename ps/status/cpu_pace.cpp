#include "ps/status/cpu_pace.h"

#include <algorithm>

namespace pushpull {

namespace {

constexpr int64_t kCpuPointMs = 500;
constexpr int64_t kCpuWindowMs = 8'000;

}  // namespace

void CpuPace::on_tick(int64_t now_ms, const std::map<uint64_t, MemberInfo>& shown) {
  std::erase_if(points_, [&](const auto& entry) { return !shown.contains(entry.first); });
  for (const auto& [incarnation, member] : shown) {
    // The server in the coordinator's process has no connection.
    const int64_t at_ms = member.peer.empty() ? now_ms : member.last_heard_ms;
    std::deque<Point>& points = points_[incarnation];
    if (!points.empty() && at_ms - points.back().at_ms < kCpuPointMs) continue;
    points.push_back({at_ms, member.stats.cpu_seconds()});
    while (points.size() > 2 && at_ms - points[1].at_ms >= kCpuWindowMs) points.pop_front();
  }
}

std::optional<double> CpuPace::cores_used(uint64_t incarnation) const {
  const auto found = points_.find(incarnation);
  if (found == points_.end() || found->second.size() < 2) return std::nullopt;
  const Point& first = found->second.front();
  const Point& last = found->second.back();
  // A report of an earlier term may come last.
  return std::max(0.0, last.cpu_seconds - first.cpu_seconds) * 1000.0 /
         static_cast<double>(last.at_ms - first.at_ms);
}

}  // namespace pushpull
