#include "cli/report/run_data.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/result/compare_read.h"
#include "common/base/error.h"
#include "common/io/file.h"
#include "common/job/job.h"

namespace pushpull {

namespace {

using nlohmann::json;

constexpr int64_t kMaxJobBytes = 1 << 20;
constexpr int64_t kMaxJsonBytes = int64_t{64} << 20;
constexpr int64_t kMaxMetricsBytes = int64_t{256} << 20;

// Returns the file as JSON, or null if it cannot be read or parsed.
json read_json(const std::string& path) {
  try {
    json out = json::parse(read_text_file(path, kMaxJsonBytes), nullptr, false);
    return out.is_object() ? out : json();
  } catch (const Error&) {
    return {};
  }
}

std::optional<double> real(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_number()) return std::nullopt;
  const double value = object[key].get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> whole(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return std::nullopt;
  return object[key].is_number_integer() ? std::optional(object[key].get<int64_t>()) : std::nullopt;
}

std::string word(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return "";
  return object[key].is_string() ? object[key].get<std::string>() : "";
}

std::vector<MetricsPoint> read_points(const std::string& metrics) {
  std::vector<MetricsPoint> out;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const json entry = json::parse(line, nullptr, false);
    const std::optional<double> seconds = real(entry, "seconds");
    const std::optional<int64_t> step = whole(entry, "step");
    if (!seconds || !step) continue;
    // After a lost server the run returned to a checkpoint: the later line of a step counts.
    while (!out.empty() && out.back().step >= *step) out.pop_back();
    out.push_back({*seconds, *step, whole(entry, "samples").value_or(0), real(entry, "loss"),
                   real(entry, "samples_per_second")});
  }
  return out;
}

std::vector<MemberRow> read_members(const json& members, const char* list) {
  std::vector<MemberRow> out;
  if (!members.is_object() || !members.contains(list) || !members[list].is_array()) return out;
  for (const json& entry : members[list]) {
    MemberRow row;
    row.role = word(entry, "role");
    row.rank = whole(entry, "rank");
    row.host = word(entry, "host");
    row.pid = whole(entry, "pid").value_or(0);
    row.device = word(entry, "device");
    row.step = whole(entry, "step").value_or(0);
    row.samples = whole(entry, "samples").value_or(0);
    row.cpu_seconds = real(entry, "cpu_seconds");
    row.peak_mib = real(entry, "peak_rss_mib");
    row.reason = word(entry, "reason");
    row.at_seconds = real(entry, "at_seconds");
    out.push_back(std::move(row));
  }
  return out;
}

// Returns the metric of the first head in the newest evaluation, or "".
std::string metric_of_lines(const std::string& metrics) {
  std::string out;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const json entry = json::parse(line, nullptr, false);
    if (!entry.is_object() || !entry.contains("heads") || !entry["heads"].is_array()) continue;
    if (!entry["heads"].empty()) out = word(entry["heads"].front(), "metric");
  }
  return out;
}

int64_t count_of(const std::vector<MemberRow>& members, const std::string& role) {
  return std::ranges::count_if(members, [&](const MemberRow& m) { return m.role == role; });
}

void add_faults(const json& summary, RunData& data) {
  const auto add = [&](const std::string& name, std::optional<int64_t> count) {
    if (count.value_or(0) > 0) data.faults.emplace_back(name, *count);
  };
  add("servers lost and replaced", whole(summary, "recoveries"));
  add("steps repeated", whole(summary, "steps_repeated"));
  add("checkpoints failed", whole(summary, "checkpoints_failed"));
  add("bad gradients", whole(summary, "bad_gradients"));
  add("pushes dropped", whole(summary, "pushes_dropped"));
  add("connections refused", whole(summary, "refused_peers"));
  if (!summary.contains("rejected_by_reason")) return;
  for (const auto& [reason, count] : summary["rejected_by_reason"].items()) {
    if (count.is_number_integer()) add("messages rejected: " + reason, count.get<int64_t>());
  }
}

}  // namespace

RunData read_run_data(const std::string& folder) {
  RunData data;
  data.folder = folder;
  data.job_ini = read_text_file(folder + "/job.ini", kMaxJobBytes);
  const Job job = parse_job_text(data.job_ini, folder + "/job.ini");
  const json members = read_json(folder + "/members.json");
  data.members = read_members(members, "members");
  data.left = read_members(members, "left");
  const std::string metrics = read_tail(folder + "/metrics.jsonl", kMaxMetricsBytes);
  data.points = read_points(metrics);
  data.run.strategy = job.strategy.to_string();
  data.run.seed = job.seed;
  data.run.workers = std::max<int64_t>(1, count_of(data.members, "worker"));
  data.run.servers = std::max<int64_t>(1, count_of(data.members, "server"));
  read_run(folder, job.global_batch, data.run);
  data.finished = data.run.failure.empty();
  data.run.failure.clear();
  if (!data.finished) {
    data.run.curve = read_curve(metrics, job.global_batch);
    data.run.metric = metric_of_lines(metrics);
    return data;
  }
  const json summary = read_json(folder + "/summary.json");
  data.run.workers = whole(summary, "workers").value_or(data.run.workers);
  data.run.servers = whole(summary, "servers").value_or(data.run.servers);
  data.stopped_by = word(summary, "stopped_by");
  add_faults(summary, data);
  return data;
}

}  // namespace pushpull
