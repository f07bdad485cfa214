#include "ps/report/member_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "common/base/text.h"
#include "common/io/json.h"

namespace pushpull {

namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxShownBytes = 255;
constexpr size_t kMaxReasonBytes = 400;

double seconds_between(int64_t from_ms, int64_t to_ms) {
  return static_cast<double>(std::max<int64_t>(0, to_ms - from_ms)) / 1000.0;
}

const char* role_name(wire::Role role) { return role == wire::ROLE_SERVER ? "server" : "worker"; }

ordered_json rank_of(const MemberInfo& member) {
  return member.rank < 0 ? ordered_json(nullptr) : ordered_json(member.rank);
}

std::string word(const std::string& text) { return printable(text, kMaxShownBytes); }

const PushedWork& pushed_by(const MembersView& view, uint64_t incarnation) {
  static const PushedWork nothing;
  if (view.committed == nullptr) return nothing;
  const auto found = view.committed->by_process().find(incarnation);
  return found == view.committed->by_process().end() ? nothing : found->second;
}

int64_t samples_of(const MembersView& view, uint64_t incarnation) {
  return view.committed == nullptr ? 0 : view.committed->samples_of(incarnation);
}

// Returns the first incomplete step. Server 0 knows its own before it reports it.
int64_t shown_step(const MembersView& view, const MemberInfo& member) {
  if (view.committed == nullptr) return 0;
  if (member.role == wire::ROLE_WORKER) return pushed_by(view, member.incarnation).step;
  return member.peer.empty() ? view.committed->floor() : member.stats.floor();
}

GroupPlace place_of(const MembersView& view, uint64_t incarnation) {
  if (view.groups == nullptr) return {};
  const auto found = view.groups->find(incarnation);
  return found == view.groups->end() ? GroupPlace{} : found->second;
}

const char* state_of(const MembersView& view, const MemberInfo& member) {
  if (member.role == wire::ROLE_SERVER) return "active";
  if (!member.declared) return "joining";
  const bool in_groups = view.groups != nullptr && !view.groups->empty();
  const bool waits = in_groups && place_of(view, member.incarnation).group == 0;
  if (member.rank < 0 || waits) return "spare";
  return view.committed == nullptr ? "ready" : "active";
}

// Adds the staleness of updates: those that a server has applied, or those of a worker.
void add_staleness(ordered_json& row, const MembersView& view, const MemberInfo& member) {
  double sum = 0.0;
  double count = 0.0;
  int64_t most = 0;
  if (member.role == wire::ROLE_SERVER) {
    for (const auto& [value, times] : member.stats.staleness()) {
      sum += static_cast<double>(value) * static_cast<double>(times);
      count += static_cast<double>(times);
      most = std::max(most, value);
    }
  } else {
    const PushedWork& work = pushed_by(view, member.incarnation);
    sum = static_cast<double>(work.staleness_sum);
    count = static_cast<double>(work.pushes);
    most = work.staleness_max;
  }
  row["staleness_mean"] = json_number(count > 0 ? sum / count : 0.0);
  row["staleness_max"] = most;
}

// The server in the coordinator's process is always heard from.
double heard_seconds(const MembersView& view, const MemberInfo& member) {
  return member.peer.empty() ? 0.0 : seconds_between(member.last_heard_ms, view.now_ms);
}

// Adds what the member uses, and what it has been given. Null: unknown, or no limit.
void add_resources(ordered_json& row, const MembersView& view, const MemberInfo& member) {
  const auto mib = [](int64_t kib) {
    return kib == 0 ? ordered_json(nullptr) : ordered_json(static_cast<double>(kib) / 1024.0);
  };
  const wire::Stats& stats = member.stats;
  row["rss_mib"] = mib(stats.rss_kib());
  row["memory_limit_mib"] = mib(stats.memory_limit_kib());
  row["cores_used"] = json_number(view.usage->cores_used(member.incarnation));
  row["cores"] = stats.cores() == 0.0 ? ordered_json(nullptr) : json_number(stats.cores());
  row["sent_bytes_per_second"] = json_number(view.usage->bytes_sent_per_second(member.incarnation));
  row["received_bytes_per_second"] =
      json_number(view.usage->bytes_received_per_second(member.incarnation));
  row["device_used_mib"] = stats.device_kib() == 0
                               ? ordered_json(nullptr)
                               : ordered_json(static_cast<double>(stats.device_used_kib()) / 1024);
  row["device_mib"] = mib(stats.device_kib());
}

ordered_json member_row(const MembersView& view, const MemberInfo& member) {
  const PushedWork& work = pushed_by(view, member.incarnation);
  const bool worker = member.role == wire::ROLE_WORKER;
  ordered_json row;
  row["role"] = role_name(member.role);
  row["rank"] = rank_of(member);
  row["pid"] = member.pid;
  row["host"] = word(member.host);
  row["state"] = state_of(view, member);
  if (worker) {
    const GroupPlace place = place_of(view, member.incarnation);
    row["group"] = place.group == 0 ? ordered_json(nullptr) : ordered_json(place.group);
    row["stage"] = place.stage < 0 ? ordered_json(nullptr) : ordered_json(place.stage);
  }
  row["step"] = shown_step(view, member);
  row["samples"] = samples_of(view, member.incarnation);
  if (worker) {
    row["clock"] = work.clock;
    row["samples_per_second"] =
        json_number(view.stragglers->samples_per_second(member.incarnation));
    row["straggler"] = view.stragglers->straggles(member.incarnation);
    row["waits_for"] = member.stats.waits_for();
  } else {
    row["updates"] = member.stats.updates();
  }
  add_staleness(row, view, member);
  row["heard_seconds"] = heard_seconds(view, member);
  row["cpu_seconds"] = json_number(member.stats.cpu_seconds());
  row["peak_rss_mib"] = static_cast<double>(member.stats.peak_rss_kib()) / 1024.0;
  add_resources(row, view, member);
  row["device"] = word(member.device);
  const std::string& of_worker =
      member.peer_endpoint.empty() ? member.group_endpoint : member.peer_endpoint;
  row["address"] = word(worker ? of_worker : member.data_endpoint);
  if (!worker) row["listener"] = member.data_port().listener;
  return row;
}

ordered_json left_row(const MembersView& view, const FormerMember& former) {
  ordered_json row;
  row["role"] = role_name(former.member.role);
  row["rank"] = rank_of(former.member);
  row["pid"] = former.member.pid;
  row["host"] = word(former.member.host);
  row["step"] = shown_step(view, former.member);
  row["samples"] = samples_of(view, former.member.incarnation);
  row["reason"] = printable(former.reason, kMaxReasonBytes);
  row["at_seconds"] = seconds_between(view.began_ms, former.at_ms);
  return row;
}

// Lists servers, then workers, each by rank; members without a rank come last.
std::vector<const MemberInfo*> in_order(const MembersView& view) {
  std::vector<const MemberInfo*> order;
  for (const auto& [incarnation, member] : *view.shown) order.push_back(&member);
  std::sort(order.begin(), order.end(), [](const MemberInfo* a, const MemberInfo* b) {
    const auto key = [](const MemberInfo* m) {
      return std::tuple(m->role, m->rank < 0, m->rank, m->pid, m->incarnation);
    };
    return key(a) < key(b);
  });
  return order;
}

std::vector<ordered_json> member_rows(const MembersView& view) {
  std::vector<ordered_json> rows;
  for (const MemberInfo* member : in_order(view)) rows.push_back(member_row(view, *member));
  return rows;
}

std::vector<ordered_json> left_rows(const MembersView& view) {
  std::vector<ordered_json> rows;
  std::set<uint64_t> named;
  for (const auto& [incarnation, member] : *view.shown) named.insert(incarnation);
  for (const FormerMember& former : view.members->former()) {
    rows.push_back(left_row(view, former));
    named.insert(former.member.incarnation);
  }
  if (view.committed == nullptr) return rows;
  // A coordinator that was started again knows of such a process from the checkpoint alone.
  for (const auto& [incarnation, samples] : view.committed->counts().samples_per_process) {
    if (named.contains(incarnation)) continue;
    const MemberInfo unknown{.role = wire::ROLE_WORKER, .incarnation = incarnation};
    rows.push_back(left_row(
        view, {unknown, "it did not come back after the loss of a server", view.began_ms}));
  }
  return rows;
}

std::string dumped(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string row_lines(const std::vector<ordered_json>& rows) {
  std::string out;
  for (const ordered_json& row : rows) out += (out.empty() ? "\n  " : ",\n  ") + dumped(row);
  return "[" + out + (rows.empty() ? "]" : "\n ]");
}

}  // namespace

std::vector<MemberFigures> member_figures(const MembersView& view) {
  std::vector<MemberFigures> out;
  for (const MemberInfo* member : in_order(view)) {
    MemberFigures figures;
    figures.worker = member->role == wire::ROLE_WORKER;
    figures.rank = member->rank;
    figures.host = member->host;
    figures.pid = member->pid;
    const GroupPlace place = place_of(view, member->incarnation);
    figures.group = static_cast<double>(place.group);
    figures.stage = place.stage;
    figures.step = static_cast<double>(shown_step(view, *member));
    figures.samples = static_cast<double>(samples_of(view, member->incarnation));
    figures.samples_per_second = view.stragglers->samples_per_second(member->incarnation);
    figures.straggler = view.stragglers->straggles(member->incarnation) ? 1.0 : 0.0;
    figures.heard_seconds = heard_seconds(view, *member);
    figures.cpu_seconds = member->stats.cpu_seconds();
    figures.peak_memory_bytes = 1024.0 * static_cast<double>(member->stats.peak_rss_kib());
    figures.memory_bytes = 1024.0 * static_cast<double>(member->stats.rss_kib());
    figures.cores = member->stats.cores();
    figures.sent_bytes = static_cast<double>(member->stats.bytes_sent());
    figures.received_bytes = static_cast<double>(member->stats.bytes_received());
    figures.device_used_bytes = 1024.0 * static_cast<double>(member->stats.device_used_kib());
    figures.device_bytes = 1024.0 * static_cast<double>(member->stats.device_kib());
    out.push_back(std::move(figures));
  }
  return out;
}

std::string members_json(const MembersView& view, const RunFigures& figures) {
  std::string out = "{\"members\": " + row_lines(member_rows(view)) +
                    ",\n \"left\": " + row_lines(left_rows(view));
  const ordered_json job = figures_json(figures, Figure::kMembers);
  for (const auto& [name, value] : job.items()) {
    out.append(",\n \"").append(name).append("\": ").append(dumped(value));
  }
  return out + "}\n";
}

std::string status_json(const MembersView& view, const RunFigures& figures) {
  ordered_json j = figures_json(figures, Figure::kStatus);
  j["members"] = member_rows(view);
  j["left"] = left_rows(view);
  j["left_before"] = view.members->forgotten();
  return dumped(j);
}

}  // namespace pushpull
