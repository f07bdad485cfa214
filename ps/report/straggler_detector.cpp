#include "ps/report/straggler_detector.h"

#include <algorithm>
#include <vector>

namespace pushpull {
namespace {

constexpr int64_t kUsagePointMs = 500;
constexpr int64_t kUsageWindowMs = 8'000;

}  // namespace

void UsageRates::on_tick(int64_t now_ms, const std::map<uint64_t, MemberInfo>& shown) {
  std::erase_if(points_, [&](const auto& entry) { return !shown.contains(entry.first); });
  for (const auto& [incarnation, member] : shown) {
    // The server in the coordinator's process has no connection.
    const int64_t at_ms = member.peer.empty() ? now_ms : member.last_heard_ms;
    std::deque<Point>& points = points_[incarnation];
    if (!points.empty() && at_ms - points.back().at_ms < kUsagePointMs) continue;
    points.push_back({at_ms, member.stats.cpu_seconds(),
                      static_cast<double>(member.stats.bytes_sent()),
                      static_cast<double>(member.stats.bytes_received())});
    while (points.size() > 2 && at_ms - points[1].at_ms >= kUsageWindowMs) points.pop_front();
  }
}

std::optional<double> UsageRates::per_second(uint64_t incarnation, double Point::*total) const {
  const auto found = points_.find(incarnation);
  if (found == points_.end() || found->second.size() < 2) return std::nullopt;
  const Point& first = found->second.front();
  const Point& last = found->second.back();
  // A report of an earlier term may come last.
  return std::max(0.0, last.*total - first.*total) * 1000.0 /
         static_cast<double>(last.at_ms - first.at_ms);
}

namespace {

constexpr int64_t kPointMs = 500;
constexpr int64_t kWindowMs = 8'000;
constexpr int64_t kMinTasks = 2;    // fewest tasks for a meaningful mean
constexpr double kLostPart = 0.25;  // of the others' time
constexpr int64_t kStalledMs = 2'000;
constexpr double kStalledSteps = 3.0;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void StragglerDetector::on_tick(int64_t now_ms, const Membership& members,
                                const CommittedWork& committed) {
  note_step(now_ms, committed.floor());
  std::set<uint64_t> there;
  for (const auto& [incarnation, member] : members.all()) {
    if (member.role != wire::ROLE_WORKER || member.rank < 0) continue;
    there.insert(incarnation);
    Worker& worker = workers_[incarnation];
    const wire::Stats& stats = member.stats;
    worker.waits = !stats.waits_for().empty();
    std::deque<Point>& points = worker.points;
    if (!points.empty() && now_ms - points.back().at_ms < kPointMs) continue;
    points.push_back({now_ms, committed.samples_of(incarnation), stats.computed(),
                      stats.compute_seconds() + stats.push_seconds() + stats.pull_seconds(),
                      stats.wait_seconds()});
    while (points.size() > 2 && now_ms - points[1].at_ms >= kWindowMs) points.pop_front();
  }
  std::erase_if(workers_, [&](const auto& entry) { return !there.contains(entry.first); });
  stragglers_.clear();
  find_slow();
  find_stalled(now_ms);
}

void StragglerDetector::note_step(int64_t now_ms, int64_t floor) {
  if (floor == floor_) return;
  if (floor_ >= 0 && floor > floor_) {
    const double took_ms =
        static_cast<double>(now_ms - floor_ms_) / static_cast<double>(floor - floor_);
    step_ms_ = step_ms_ == 0.0 ? took_ms : 0.7 * step_ms_ + 0.3 * took_ms;
  }
  floor_ = floor;
  floor_ms_ = now_ms;
}

double StragglerDetector::samples_per_second(uint64_t incarnation) const {
  const auto found = workers_.find(incarnation);
  if (found == workers_.end() || found->second.points.size() < 2) return 0.0;
  const Point& first = found->second.points.front();
  const Point& last = found->second.points.back();
  return static_cast<double>(last.samples - first.samples) * 1000.0 /
         static_cast<double>(last.at_ms - first.at_ms);
}

std::map<uint64_t, StragglerDetector::Task> StragglerDetector::tasks() const {
  std::map<uint64_t, Task> out;
  for (const auto& [incarnation, worker] : workers_) {
    if (worker.points.size() < 2) continue;
    const Point& first = worker.points.front();
    const Point& last = worker.points.back();
    if (last.tasks - first.tasks < kMinTasks) continue;
    const auto tasks = static_cast<double>(last.tasks - first.tasks);
    out[incarnation] = {(last.busy_s - first.busy_s) / tasks, (last.wait_s - first.wait_s) / tasks};
  }
  return out;
}

void StragglerDetector::find_slow() {
  const std::map<uint64_t, Task> all = tasks();
  if (all.size() < 2) return;
  for (const auto& [incarnation, mine] : all) {
    std::vector<double> busy;
    std::vector<double> wait;
    for (const auto& [other, task] : all) {
      if (other == incarnation) continue;
      busy.push_back(task.busy_s);
      wait.push_back(task.wait_s);
    }
    const double others_busy = median(std::move(busy));
    const double others_wait = median(std::move(wait));
    const double lost = others_wait - mine.wait_s;
    if (mine.busy_s > others_busy && lost >= kLostPart * (others_busy + others_wait)) {
      stragglers_.insert(incarnation);
    }
  }
}

void StragglerDetector::find_stalled(int64_t now_ms) {
  const auto stalled_ms = static_cast<double>(now_ms - floor_ms_);
  if (stalled_ms < std::max<double>(kStalledMs, kStalledSteps * step_ms_)) return;
  const auto waiting = std::count_if(workers_.begin(), workers_.end(),
                                     [](const auto& entry) { return entry.second.waits; });
  if (waiting * 2 < std::ssize(workers_)) return;
  for (const auto& [incarnation, worker] : workers_) {
    if (!worker.waits) stragglers_.insert(incarnation);
  }
}

}  // namespace pushpull
