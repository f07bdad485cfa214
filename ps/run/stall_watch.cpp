#include "ps/run/stall_watch.h"

#include <algorithm>

#include "common/base/text.h"
#include "ps/run/training_run.h"

namespace pushpull {

namespace {

constexpr int64_t kNameAfterMs = 10'000;
constexpr int64_t kNameAgainMs = 30'000;
constexpr int64_t kStepsOfPatience = 3;
constexpr size_t kKeptSteps = 101;
constexpr size_t kMaxNames = 4;

}  // namespace

void StallWatch::on_tick(int64_t now_ms, const TrainingRun& run) {
  note_floor(now_ms, run);
  note_workers(now_ms);
  // Missing workers and snapshots have deadlines of their own.
  if (run.work().lacks_workers() || run.snapshots().disk_step()) moved_ms_ = now_ms;
}

void StallWatch::note_floor(int64_t now_ms, const TrainingRun& run) {
  const CommittedWork& committed = run.committed();
  const int64_t moves =
      committed.counts().pushes_applied + committed.counts().pushes_dropped + run.transferred();
  if (moves != moves_) moved_ms_ = now_ms;
  moves_ = moves;
  if (committed.floor() == floor_) return;
  if (floor_ >= 0) {
    step_ms_.push_back((now_ms - floor_ms_) / (committed.floor() - floor_));
    if (step_ms_.size() > kKeptSteps) step_ms_.pop_front();
  }
  floor_ = committed.floor();
  floor_ms_ = now_ms;
  moved_ms_ = now_ms;
  notice_ms_ = -1;
}

void StallWatch::note_workers(int64_t now_ms) {
  const auto gone = [&](const auto& entry) { return members_.find(entry.first) == nullptr; };
  if (std::erase_if(workers_, gone) > 0) moved_ms_ = now_ms;  // other workers take over their work
  for (const auto& [incarnation, member] : members_.all()) {
    if (member.role != wire::ROLE_WORKER || !member.declared) continue;
    const auto [found, is_new] = workers_.try_emplace(incarnation);
    Worker& worker = found->second;
    const bool computed = member.stats.progress() != worker.progress;
    worker.progress = member.stats.progress();
    if (computed || is_new) moved_ms_ = now_ms;
    if (is_new || computed || !member.stats.waits_for().empty()) worker.active_ms = now_ms;
  }
}

bool StallWatch::evaluating(const TrainingRun& run) const {
  return run.barriers().evaluation_due(floor_) && !run.evaluations().complete(floor_);
}

bool StallWatch::waits(uint64_t incarnation) const {
  const MemberInfo* member = members_.find(incarnation);
  return member == nullptr || !member->stats.waits_for().empty();
}

int64_t StallWatch::limit_ms() const {
  if (step_ms_.empty()) return kNameAfterMs;
  std::vector<int64_t> sorted(step_ms_.begin(), step_ms_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return std::max(kNameAfterMs, kStepsOfPatience * *middle);
}

std::string StallWatch::describe(uint64_t incarnation, int64_t now_ms) const {
  const MemberInfo* member = members_.find(incarnation);
  const auto found = workers_.find(incarnation);
  if (member == nullptr || found == workers_.end()) return "a worker that has just joined";
  if (waits(incarnation)) return member->name() + " waits for " + member->stats.waits_for();
  return member->name() + " has computed nothing for " +
         seconds_text(now_ms - found->second.active_ms) + " s";
}

std::string StallWatch::describe_all(const std::vector<uint64_t>& workers, int64_t now_ms) const {
  std::string out;
  for (size_t i = 0; i < std::min(workers.size(), kMaxNames); ++i) {
    out += (i == 0 ? "" : "; ") + describe(workers[i], now_ms);
  }
  if (workers.size() <= kMaxNames) return out;
  return out + "; and " + std::to_string(workers.size() - kMaxNames) + " more";
}

std::optional<std::string> StallWatch::take_notice(int64_t now_ms, const TrainingRun& run) {
  // An evaluation has no steps: it is stuck if no chunk is computed.
  const bool evaluates = evaluating(run);
  const int64_t since_ms = evaluates ? std::max(floor_ms_, moved_ms_) : floor_ms_;
  if (now_ms - since_ms <= kNameAfterMs || now_ms - since_ms <= limit_ms()) return std::nullopt;
  if (notice_ms_ >= 0 && now_ms - notice_ms_ < kNameAgainMs) return std::nullopt;
  std::vector<uint64_t> busy = run.unfinished(floor_);
  const auto is_waiting = [this](uint64_t incarnation) { return waits(incarnation); };
  // Workers that wait, wait for those that do not.
  if (!std::all_of(busy.begin(), busy.end(), is_waiting)) std::erase_if(busy, is_waiting);
  if (busy.empty()) return std::nullopt;
  notice_ms_ = now_ms;
  return (evaluates ? "the evaluation at step " : "step ") + std::to_string(floor_) +
         " has not ended for " + seconds_text(now_ms - since_ms) +
         " s: " + describe_all(busy, now_ms);
}

std::vector<Membership::Loss> StallWatch::stuck(int64_t now_ms) const {
  std::vector<Membership::Loss> out;
  const auto timeout_ms = static_cast<int64_t>(job_.progress_timeout_s * 1000);
  if (timeout_ms == 0) return out;
  for (const auto& [incarnation, worker] : workers_) {
    if (now_ms - worker.active_ms <= timeout_ms) continue;
    out.push_back({incarnation, "it sends heartbeats, but has computed nothing for " +
                                    seconds_text(now_ms - worker.active_ms) +
                                    " s (progress-timeout = " + seconds_text(timeout_ms) + ")"});
  }
  return out;
}

std::string StallWatch::overdue(int64_t now_ms, const TrainingRun& run) const {
  const auto timeout_ms = static_cast<int64_t>(job_.progress_timeout_s * 1000);
  if (timeout_ms == 0 || now_ms - moved_ms_ <= timeout_ms) return "";
  const bool all_wait = std::all_of(workers_.begin(), workers_.end(),
                                    [this](const auto& entry) { return waits(entry.first); });
  if (!all_wait) return "";  // `stuck` finds the other workers
  const std::vector<uint64_t> busy = run.unfinished(floor_);
  return "[job] nothing has been computed for " + seconds_text(now_ms - moved_ms_) +
         " s (progress-timeout = " + seconds_text(timeout_ms) + "), at step " +
         std::to_string(floor_) + (busy.empty() ? "" : ": " + describe_all(busy, now_ms));
}

}  // namespace pushpull
