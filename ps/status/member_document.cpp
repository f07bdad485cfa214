#include "ps/status/member_document.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>
#include <vector>

#include "common/base/text.h"
#include "common/io/json.h"
#include "common/io/sha256.h"
#include "common/net/frames.h"

namespace pushpull {

namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxShownBytes = 255;
constexpr size_t kMaxReasonBytes = 400;
constexpr size_t kRunDigits = 12;

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

// Returns the first incomplete step. Server 0 knows its own before it reports it.
int64_t shown_step(const MembersView& view, const MemberInfo& member) {
  if (view.committed == nullptr) return 0;
  if (member.role == wire::ROLE_WORKER) return pushed_by(view, member.incarnation).step;
  return member.peer.empty() ? view.committed->floor() : member.stats.floor();
}

const char* state_of(const MembersView& view, const MemberInfo& member) {
  if (member.role == wire::ROLE_SERVER) return "active";
  if (!member.declared) return "joining";
  if (member.rank < 0) return "spare";
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
  row["cores_used"] = json_number(view.cpu->cores_used(member.incarnation));
  row["cores"] = stats.cores() == 0.0 ? ordered_json(nullptr) : json_number(stats.cores());
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
  row["step"] = shown_step(view, member);
  row["samples"] = work.samples;
  if (worker) {
    row["clock"] = work.clock;
    row["samples_per_second"] = json_number(view.pace->samples_per_second(member.incarnation));
    row["straggler"] = view.pace->straggles(member.incarnation);
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
  row["address"] = word(worker ? member.peer_endpoint : member.data_endpoint);
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
  row["samples"] = pushed_by(view, former.member.incarnation).samples;
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
  for (const FormerMember& former : view.members->former()) rows.push_back(left_row(view, former));
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

// Returns a digest that tells runs apart. It reveals nothing that a message of the run needs.
std::string run_digest(uint64_t run) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&run, 1)));
  return hash.hex().substr(0, kRunDigits);
}

void add_training(ordered_json& j, const JobFacts& facts) {
  j["step"] = *facts.step;
  j["steps"] = facts.end_step;
  j["epoch"] = facts.epoch;
  j["samples"] = facts.samples;
  j["samples_per_second"] = json_number(facts.samples_per_second);
  j["learning_rate"] = json_number(facts.learning_rate);
  j["loss"] = json_number(facts.loss);
  j["staleness_mean"] = json_number(facts.staleness_mean);
  j["staleness_max"] = facts.staleness_max;
  j["seconds"] = json_number(facts.seconds);
  j["eta_seconds"] = json_number(facts.eta_seconds);
}

}  // namespace

const char* phase_name(wire::Phase phase) {
  constexpr std::array<const char*, 5> kNames = {"gathering", "training", "finishing", "finished",
                                                 "failed"};
  return kNames.at(static_cast<size_t>(phase));
}

std::vector<MemberFigures> member_figures(const MembersView& view) {
  std::vector<MemberFigures> out;
  for (const MemberInfo* member : in_order(view)) {
    MemberFigures figures;
    figures.worker = member->role == wire::ROLE_WORKER;
    figures.rank = member->rank;
    figures.host = member->host;
    figures.pid = member->pid;
    figures.step = static_cast<double>(shown_step(view, *member));
    figures.samples = static_cast<double>(pushed_by(view, member->incarnation).samples);
    figures.samples_per_second = view.pace->samples_per_second(member->incarnation);
    figures.straggler = view.pace->straggles(member->incarnation) ? 1.0 : 0.0;
    figures.heard_seconds = heard_seconds(view, *member);
    figures.cpu_seconds = member->stats.cpu_seconds();
    figures.peak_memory_bytes = 1024.0 * static_cast<double>(member->stats.peak_rss_kib());
    figures.memory_bytes = 1024.0 * static_cast<double>(member->stats.rss_kib());
    figures.cores = member->stats.cores();
    out.push_back(std::move(figures));
  }
  return out;
}

std::string members_json(const MembersView& view) {
  return "{\"members\": " + row_lines(member_rows(view)) +
         ",\n \"left\": " + row_lines(left_rows(view)) + "}\n";
}

std::string status_json(const MembersView& view, const JobFacts& facts) {
  ordered_json j;
  j["version"] = facts.version;
  j["protocol"] = kProtocolVersion;
  j["run"] = run_digest(facts.run);
  j["phase"] = phase_name(facts.phase);
  j["strategy"] = facts.strategy;
  j["servers"] = facts.servers;
  j["workers"] = facts.workers;
  j["host"] = word(facts.host);
  j["pid"] = facts.pid;
  j["out"] = printable(facts.out, kMaxPathBytes);
  j["up_seconds"] = seconds_between(0, facts.up_ms);
  j["waiting_for"] = facts.waiting_for;
  j["failure"] = printable(facts.failure, kMaxPathBytes);
  if (facts.step) add_training(j, facts);
  j["members"] = member_rows(view);
  j["left"] = left_rows(view);
  j["left_before"] = view.members->forgotten();
  return dumped(j);
}

}  // namespace pushpull
