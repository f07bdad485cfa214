#include "ps/server/update_logs.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "common/job/job.h"
#include "common/layout/slice_map.h"

namespace pushpull {

void UpdateLog::add(wire::Applied applied) { open_.push_back(std::move(applied)); }

std::optional<wire::RecordPart> UpdateLog::part() const {
  if (open_.empty()) return std::nullopt;
  wire::RecordPart out;
  out.set_first(confirmed_);
  size_t bytes = 0;
  for (const wire::Applied& applied : open_) {
    bytes += applied.ByteSizeLong();
    const bool full = static_cast<size_t>(out.applied_size()) >= kMaxEntries || bytes > kMaxBytes;
    if (full && out.applied_size() > 0) break;
    *out.add_applied() = applied;
  }
  return out;
}

void UpdateLog::confirm(int64_t through) {
  const int64_t news = std::min(through - confirmed_, static_cast<int64_t>(open_.size()));
  if (news <= 0) return;
  open_.erase(open_.begin(), open_.begin() + news);
  confirmed_ += news;
  // A backlog is sent at once: a server faster than the acknowledgements would otherwise never
  // catch up.
  const bool piled_up = open_.size() >= kMaxEntries;
  due_ms_ = piled_up ? 0 : std::min(due_ms_, due_ms_ - kRepeatMs + kEveryMs);
}

std::optional<wire::RecordPart> UpdateLog::due(int64_t now_ms) {
  if (open_.empty() || now_ms < due_ms_) return std::nullopt;
  due_ms_ = now_ms + kRepeatMs;
  return part();
}

std::vector<wire::RecordPart> UpdateLog::take_rest() {
  std::vector<wire::RecordPart> out;
  while (const auto rest = part()) {
    confirm(rest->first() + rest->applied_size());
    out.push_back(*rest);
  }
  return out;
}

ServerLogs::ServerLogs(int servers, int64_t micro_batches, int64_t stages)
    : micro_batches_(micro_batches), stages_(stages), logs_(static_cast<size_t>(servers)) {}

Checked ServerLogs::to_push(const wire::Applied& applied, RecordedPush& out) const {
  const bool in_step =
      applied.lo() >= 0 && applied.lo() < applied.hi() && applied.hi() <= micro_batches_;
  if (applied.step() < 0 || !in_step) {
    return refused(
        "bad-push", "micro-batches of the " + std::to_string(micro_batches_) + " of a step",
        range_text(applied.lo(), applied.hi()) + " of step " + std::to_string(applied.step()));
  }
  if (applied.read_versions_size() != servers() * stages_) {
    return refused("bad-push",
                   "a version of each of " + std::to_string(servers()) + " servers for each of " +
                       std::to_string(stages_) + " stages",
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
  const auto most = static_cast<int>(UpdateLog::kMaxEntries);
  if (part.first() < 0 || part.applied_size() > most) {
    return refused("bad-record-part", "at most " + std::to_string(most) + " entries from 0 on",
                   std::to_string(part.applied_size()) + " from " + std::to_string(part.first()) +
                       " of server " + std::to_string(server));
  }
  std::vector<Entry>& log = logs_[static_cast<size_t>(server)];
  const int64_t known = std::ssize(log) - part.first();
  if (known < 0) return std::nullopt;  // an earlier part was lost and will be resent
  std::vector<Entry> news;
  for (int64_t i = known; i < part.applied_size(); ++i) {
    const wire::Applied& applied = part.applied(static_cast<int>(i));
    Entry entry;
    if (Checked refusal = to_push(applied, entry.push)) return refusal;
    entry.uncompensated = applied.uncompensated();
    entry.more = applied.more();
    news.push_back(std::move(entry));
  }
  log.insert(log.end(), std::make_move_iterator(news.begin()), std::make_move_iterator(news.end()));
  return std::nullopt;
}

std::vector<VersionRules::Read> VersionRules::reads_of(const RecordedPush& push) const {
  const auto all = static_cast<size_t>(servers);
  std::vector<Read> out;
  for (size_t i = 0; i < push.reads.size(); ++i) {
    const Read read{push.reads[i], i % all, i / all};
    const bool nothing = read.version < 0 && push.reads.size() > all;
    if (read.server < static_cast<size_t>(with_slices) && !nothing) out.push_back(read);
  }
  return out;
}

namespace {

// Tracks each server's version while updates are put in order.
class Versions {
 public:
  explicit Versions(const VersionRules& rules)
      : rules_(rules), now_(static_cast<size_t>(rules.with_slices), rules.start) {}

  bool holds(const RecordedPush& push) const {
    return std::ranges::all_of(rules_.reads_of(push), [&](const VersionRules::Read& read) {
      return read.version >= rules_.start && read.version <= now_[read.server];
    });
  }

  // Notes that an update is complete.
  //   push: its last one.
  void apply(size_t server, const RecordedPush& push) {
    now_[server] = rules_.in_steps ? push.step + 1 : now_[server] + 1;
  }

 private:
  VersionRules rules_;
  std::vector<int64_t> now_;
};

// A server's log, cut into updates.
class Updates {
 public:
  Updates(const std::vector<ServerLogs::Entry>& log, const VersionRules& rules)
      : log_(log), rules_(rules), whole_(log.size()) {
    while (whole_ > 0 && log_[whole_ - 1].more) --whole_;  // the rest of that update was lost
  }

  size_t taken() const { return next_; }
  // Returns the entries of the next update; empty at the end.
  std::span<const ServerLogs::Entry> next() const {
    size_t end = next_;
    while (end < whole_ && (end == next_ || joins(log_[end - 1], log_[end]))) ++end;
    return std::span(log_).subspan(next_, end - next_);
  }
  void take() { next_ += next().size(); }

 private:
  bool joins(const ServerLogs::Entry& before, const ServerLogs::Entry& entry) const {
    return before.more || (rules_.in_steps && before.push.step == entry.push.step);
  }

  const std::vector<ServerLogs::Entry>& log_;
  const VersionRules& rules_;
  size_t whole_;  // entries of complete updates
  size_t next_ = 0;
};

}  // namespace

VersionRules version_rules(const Job& job, const RecordedStart& start, const TensorTable& table,
                           int servers) {
  const bool in_steps = job.strategy.traits().step_versions;
  const int slices = SliceMap(table, job.slice_bytes, servers).slices();
  return {in_steps, in_steps ? start.step : start.updates, servers, std::min(servers, slices)};
}

int64_t merge_logs(const ServerLogs& logs, const VersionRules& rules, RunRecord& out) {
  Versions versions(rules);
  std::vector<Updates> servers;
  int64_t left = 0;
  for (int k = 0; k < rules.with_slices; ++k) {  // servers without slices have no updates
    servers.emplace_back(logs.of(k), rules);
    left += logs.have(k);
  }
  const auto can_be_next = [&](const Updates& server) {
    const auto entries = server.next();
    return !entries.empty() && std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
      return versions.holds(entry.push);
    });
  };
  std::map<RecordedPush, size_t> numbers;
  while (left > 0) {
    Updates* best = nullptr;
    for (Updates& server : servers) {
      if (best != nullptr && server.taken() >= best->taken()) continue;
      if (can_be_next(server)) best = &server;
    }
    if (best == nullptr) break;
    const auto server = static_cast<int>(best - servers.data());
    const auto entries = best->next();
    for (const ServerLogs::Entry& entry : entries) {
      const auto [place, fresh] = numbers.try_emplace(entry.push, out.pushes.size());
      if (fresh) out.pushes.push_back(entry.push);
      out.updates.push_back({server, place->second, entry.uncompensated, entry.more});
    }
    versions.apply(static_cast<size_t>(server), entries.back().push);
    left -= std::ssize(entries);
    best->take();
  }
  return left;
}

std::vector<bool> ends_of_updates(const RunRecord& record, const VersionRules& rules) {
  const size_t none = record.updates.size();
  std::vector<size_t> behind(static_cast<size_t>(record.servers), none);
  std::vector<bool> out(none, true);
  const auto step_of = [&](size_t i) { return record.pushes[record.updates[i].push].step; };
  for (size_t i = none; i-- > 0;) {
    const size_t later = std::exchange(behind[static_cast<size_t>(record.updates[i].server)], i);
    out[i] = later == none ||
             !(record.updates[i].more || (rules.in_steps && step_of(later) == step_of(i)));
  }
  return out;
}

std::string check_order(const RunRecord& record, const VersionRules& rules) {
  Versions versions(rules);
  const std::vector<bool> ends_update = ends_of_updates(record, rules);
  for (size_t i = 0; i < record.updates.size(); ++i) {
    const RecordedUpdate& update = record.updates[i];
    const RecordedPush& push = record.pushes[update.push];
    if (update.server >= rules.with_slices) return "a server without slices has updates";
    if (!versions.holds(push)) {
      return "update " + std::to_string(i + 1) + " has read a version that does not exist yet";
    }
    if (ends_update[i]) versions.apply(static_cast<size_t>(update.server), push);
  }
  return "";
}

}  // namespace pushpull
