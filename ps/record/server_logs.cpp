#include "ps/record/server_logs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/layout/slice_map.h"
#include "ps/record/update_log.h"

namespace pushpull {

ServerLogs::ServerLogs(int servers, int64_t micro_batches, int64_t updates)
    : micro_batches_(micro_batches), updates_(updates), logs_(static_cast<size_t>(servers)) {}

Checked ServerLogs::to_push(const wire::Applied& applied, RecordedPush& out) const {
  const bool in_step =
      applied.lo() >= 0 && applied.lo() < applied.hi() && applied.hi() <= micro_batches_;
  if (applied.step() < 0 || !in_step) {
    return refused("bad-push",
                   "micro-batches of the " + std::to_string(micro_batches_) + " of a step",
                   "[" + std::to_string(applied.lo()) + ", " + std::to_string(applied.hi()) +
                       ") of step " + std::to_string(applied.step()));
  }
  if (applied.read_versions_size() != servers()) {
    return refused("bad-push", "a version of each of " + std::to_string(servers()) + " servers",
                   std::to_string(applied.read_versions_size()));
  }
  out.rank = applied.rank();
  out.step = applied.step();
  out.range = {applied.lo(), applied.hi()};
  out.reads.assign(applied.read_versions().begin(), applied.read_versions().end());
  return std::nullopt;
}

Checked ServerLogs::take(int server, const wire::RecordPart& part) {
  if (server < 0 || server >= servers()) {
    return refused("wrong-role", "the rank of a server below " + std::to_string(servers()),
                   std::to_string(server));
  }
  const auto most = static_cast<int>(UpdateLog::kMostEntries);
  if (part.first() < 0 || part.applied_size() > most) {
    return refused("bad-record-part", "at most " + std::to_string(most) + " entries from 0 on",
                   std::to_string(part.applied_size()) + " from " + std::to_string(part.first()) +
                       " of server " + std::to_string(server));
  }
  std::vector<Entry>& log = logs_[static_cast<size_t>(server)];
  const int64_t known = std::ssize(log) - part.first();
  if (known < 0) return std::nullopt;  // what comes before was lost, and will be repeated
  std::vector<Entry> news;
  for (int64_t i = known; i < part.applied_size(); ++i) {
    const wire::Applied& applied = part.applied(static_cast<int>(i));
    Entry entry;
    if (Checked refusal = to_push(applied, entry.push)) return refusal;
    entry.uncompensated = applied.uncompensated();
    news.push_back(std::move(entry));
  }
  log.insert(log.end(), std::make_move_iterator(news.begin()), std::make_move_iterator(news.end()));
  return std::nullopt;
}

namespace {

// How far each server is while updates are put one after the other.
class Versions {
 public:
  explicit Versions(const VersionRules& rules)
      : rules_(rules), now_(static_cast<size_t>(rules.with_slices), rules.start) {}

  bool holds(const RecordedPush& push) const {
    for (size_t k = 0; k < now_.size(); ++k) {
      if (push.reads[k] < rules_.start || push.reads[k] > now_[k]) return false;
    }
    return true;
  }

  // last: of the entries of its step at this server.
  void apply(size_t server, const RecordedPush& push, bool last) {
    if (!rules_.in_steps) {
      ++now_[server];
    } else if (last) {
      now_[server] = push.step + 1;
    }
  }

 private:
  VersionRules rules_;
  std::vector<int64_t> now_;
};

}  // namespace

VersionRules version_rules(const Job& job, const RecordedStart& start, int64_t elements,
                           int servers) {
  const bool in_steps = job.strategy.traits().step_versions;
  const int slices = SliceMap(elements, job.slice_bytes, servers).slices();
  return {in_steps, in_steps ? start.step : start.updates, std::min(servers, slices)};
}

int64_t merge_logs(const ServerLogs& logs, const VersionRules& rules, RunRecord& out) {
  // who has no slices has applied nothing
  const auto servers = static_cast<size_t>(rules.with_slices);
  Versions versions(rules);
  std::vector<size_t> next(servers);
  int64_t left = 0;
  for (size_t k = 0; k < servers; ++k) {
    left += logs.have(static_cast<int>(k));
  }
  std::map<RecordedPush, size_t> numbers;
  while (left > 0) {
    size_t best = servers;
    for (size_t k = 0; k < servers; ++k) {
      const auto& log = logs.of(static_cast<int>(k));
      if (next[k] == log.size() || (best < servers && next[k] >= next[best])) continue;
      if (versions.holds(log[next[k]].push)) best = k;
    }
    if (best == servers) break;
    const auto& log = logs.of(static_cast<int>(best));
    const ServerLogs::Entry& entry = log[next[best]++];
    const bool last = next[best] == log.size() || log[next[best]].push.step != entry.push.step;
    const auto [place, fresh] = numbers.try_emplace(entry.push, out.pushes.size());
    if (fresh) out.pushes.push_back(entry.push);
    out.updates.push_back({static_cast<int>(best), place->second, entry.uncompensated});
    versions.apply(best, entry.push, last);
    --left;
  }
  return left;
}

std::vector<bool> ends_of_steps(const RunRecord& record) {
  const size_t none = record.updates.size();
  std::vector<size_t> behind(static_cast<size_t>(record.servers), none);
  std::vector<bool> out(none, true);
  const auto step_of = [&](size_t i) { return record.pushes[record.updates[i].push].step; };
  for (size_t i = none; i-- > 0;) {
    const size_t later = std::exchange(behind[static_cast<size_t>(record.updates[i].server)], i);
    out[i] = later == none || step_of(later) != step_of(i);
  }
  return out;
}

std::string check_order(const RunRecord& record, const VersionRules& rules) {
  Versions versions(rules);
  const std::vector<bool> ends_step = ends_of_steps(record);
  for (size_t i = 0; i < record.updates.size(); ++i) {
    const RecordedUpdate& update = record.updates[i];
    const RecordedPush& push = record.pushes[update.push];
    if (update.server >= rules.with_slices) return "a server without slices has updates";
    if (!versions.holds(push)) {
      return "update " + std::to_string(i + 1) + " has read what does not exist then";
    }
    versions.apply(static_cast<size_t>(update.server), push, ends_step[i]);
  }
  return "";
}

}  // namespace pushpull
