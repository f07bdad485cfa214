#include "ps/report/run_totals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "common/base/text.h"
#include "common/net/join.h"

namespace pushpull {

namespace {

constexpr size_t kMaxReasons = 64;
constexpr int kMaxStages = 4096;
constexpr int kMaxLogged = 4 * kMaxLoggedNames;  // of all workers
constexpr size_t kMaxRefusalBytes = 32;

// Members are not trusted: only lower-case words with hyphens are shown.
bool is_reason(const std::string& text) {
  return !text.empty() && text.size() <= kMaxRefusalBytes &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '-' || (c >= 'a' && c <= 'z'); });
}

// Saturates, since a member may report any count.
void add_to(int64_t& sum, int64_t count) {
  if (__builtin_add_overflow(sum, count, &sum)) sum = std::numeric_limits<int64_t>::max();
}

}  // namespace

Checked check_stats(const wire::Stats& stats) {
  const std::pair<const char*, double> seconds[] = {
      {"cpu_seconds", stats.cpu_seconds()},   {"compute_seconds", stats.compute_seconds()},
      {"push_seconds", stats.push_seconds()}, {"wait_seconds", stats.wait_seconds()},
      {"pull_seconds", stats.pull_seconds()}, {"cores", stats.cores()}};
  for (const auto& [name, value] : seconds) {
    if (std::isfinite(value) && value >= 0.0) continue;
    return refused("bad-stats", std::string(name) + " from 0", std::to_string(value));
  }
  const std::pair<const char*, int64_t> counts[] = {{"peak_rss_kib", stats.peak_rss_kib()},
                                                    {"rejected_frames", stats.rejected_frames()},
                                                    {"refused_peers", stats.refused_peers()},
                                                    {"bytes_pushed", stats.bytes_pushed()},
                                                    {"bytes_pulled", stats.bytes_pulled()},
                                                    {"clock_gap_max", stats.clock_gap_max()},
                                                    {"computed", stats.computed()},
                                                    {"progress", stats.progress()},
                                                    {"rss_kib", stats.rss_kib()},
                                                    {"memory_limit_kib", stats.memory_limit_kib()}};
  for (const auto& [name, value] : counts) {
    if (value >= 0) continue;
    return refused("bad-stats", std::string(name) + " from 0", std::to_string(value));
  }
  if (stats.first_stage() < 0 || stats.first_stage() > kMaxStages ||
      stats.stages_size() > kMaxStages) {
    return refused(
        "bad-stats", "at most " + std::to_string(kMaxStages) + " stages",
        std::to_string(stats.stages_size()) + " from stage " + std::to_string(stats.first_stage()));
  }
  for (const wire::StageStats& stage : stats.stages()) {
    const bool possible = std::isfinite(stage.busy_seconds()) && stage.busy_seconds() >= 0.0 &&
                          std::isfinite(stage.span_seconds()) && stage.span_seconds() >= 0.0 &&
                          stage.layers() >= 0 && stage.slots_max() >= 0 && stage.bytes_in() >= 0 &&
                          stage.bytes_out() >= 0;
    if (!possible) return refused("bad-stats", "stages from 0", stage.ShortDebugString());
  }
  for (const wire::LoggedValue& value : stats.logged()) {
    if (!is_logged_name(value.name()) || !std::isfinite(value.sum()) || value.count() < 0)
      return refused("bad-stats", "a logged value", printable(value.ShortDebugString(), 200));
  }
  if (stats.logged_size() > kMaxLoggedNames) {
    return refused("bad-stats", "at most " + std::to_string(kMaxLoggedNames) + " logged values",
                   std::to_string(stats.logged_size()));
  }
  return std::nullopt;
}

void RunTotals::add(wire::Role role, const wire::Stats& stats) {
  Role& of_role = role == wire::ROLE_SERVER ? servers : workers;
  of_role.cpu_seconds += stats.cpu_seconds();
  of_role.peak_rss_kib = std::max(of_role.peak_rss_kib, stats.peak_rss_kib());
  split.compute += stats.compute_seconds();
  split.push += stats.push_seconds();
  split.wait += stats.wait_seconds();
  split.pull += stats.pull_seconds();
  add_to(tasks, stats.computed());
  add_to(bytes_pushed, stats.bytes_pushed());
  add_to(bytes_pulled, stats.bytes_pulled());
  add_refusals(stats.rejected_frames(), stats.refusals());
  add_to(refused_peers, stats.refused_peers());
  clock_gap_max = std::max(clock_gap_max, stats.clock_gap_max());
  add_stages(stats);
  for (const wire::LoggedValue& value : stats.logged()) {
    if (!logged.contains(value.name()) && std::ssize(logged) >= kMaxLogged) continue;
    Logged& of = logged[value.name()];
    of.sum += value.sum();
    add_to(of.count, value.count());
  }
}

std::map<std::string, double> RunTotals::logged_since(const RunTotals& before) const {
  std::map<std::string, double> out;
  for (const auto& [name, now] : logged) {
    const auto found = before.logged.find(name);
    const Logged then = found == before.logged.end() ? Logged() : found->second;
    const double mean = (now.sum - then.sum) / static_cast<double>(now.count - then.count);
    if (now.count > then.count && std::isfinite(mean)) out[name] = mean;
  }
  return out;
}

void RunTotals::add_stages(const wire::Stats& stats) {
  const auto first = static_cast<size_t>(stats.first_stage());
  for (int i = 0; i < stats.stages_size(); ++i) {
    const wire::StageStats& from = stats.stages(i);
    const size_t place = first + static_cast<size_t>(i);
    if (place >= stages.size()) stages.resize(place + 1);
    Stage& stage = stages[place];
    stage.layers = std::max(stage.layers, from.layers());
    stage.busy += from.busy_seconds();
    stage.span += from.span_seconds();
    stage.slots_max = std::max(stage.slots_max, from.slots_max());
    add_to(stage.bytes_in, from.bytes_in());
    add_to(stage.bytes_out, from.bytes_out());
  }
}

void RunTotals::add_refusals(int64_t rejected,
                             const google::protobuf::RepeatedPtrField<wire::Refusal>& reasons) {
  add_to(rejected_frames, rejected);
  for (const wire::Refusal& refusal : reasons) {
    const bool known = refusals.contains(refusal.reason());
    if (refusal.count() <= 0 || refusal.count() > rejected) continue;
    if (!is_reason(refusal.reason()) || (!known && refusals.size() >= kMaxReasons)) continue;
    add_to(refusals[refusal.reason()], refusal.count());
    rejected -= refusal.count();
  }
  if (rejected > 0) add_to(refusals["other"], rejected);
}

RunTotals::Split RunTotals::mean_split() const {
  if (tasks == 0) return {};
  const auto n = static_cast<double>(tasks);
  return {split.compute / n, split.push / n, split.wait / n, split.pull / n};
}

}  // namespace pushpull
