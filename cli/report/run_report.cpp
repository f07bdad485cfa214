#include "cli/report/run_report.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/report/report_page.h"
#include "cli/result/compare_read.h"
#include "cli/result/metric_style.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/io/file.h"
#include "common/job/job.h"

namespace pushpull {
namespace {

using nlohmann::json;

constexpr int64_t kMaxJobBytes = 1 << 20;
constexpr int64_t kMaxJsonBytes = int64_t{64} << 20;
constexpr int64_t kMaxMetricsBytes = int64_t{256} << 20;
constexpr size_t kMaxLines = 4000;                   // of metrics; more cannot be seen
constexpr auto kSilence = std::chrono::seconds(15);  // members.json is renewed each second

// Returns an empty object if the file cannot be read or parsed.
json read_object(const std::string& path) {
  try {
    json out = json::parse(read_text_file(path, kMaxJsonBytes), nullptr, false);
    return out.is_object() ? out : json::object();
  } catch (const Error&) {
    return json::object();
  }
}

// Returns the complete lines, thinned out if there are many. Evaluations stay, and so do the lines
// around a return to a checkpoint.
json read_metrics(const std::string& path) {
  std::vector<json> all;
  std::istringstream lines(read_tail(path, kMaxMetricsBytes));
  for (std::string line; std::getline(lines, line);) {
    json entry = json::parse(line, nullptr, false);
    const auto has = [&](const char* key) { return entry.contains(key) && entry[key].is_number(); };
    if (entry.is_object() && has("seconds") && has("step")) all.push_back(std::move(entry));
  }
  const size_t each = all.size() / kMaxLines + 1;
  const auto back = [&](size_t i) { return i > 0 && all[i]["step"] < all[i - 1]["step"]; };
  json out = json::array();
  for (size_t i = 0; i < all.size(); ++i) {
    const bool at_edge = i + 1 == all.size() || back(i) || back(i + 1);
    if (i % each == 0 || at_edge || all[i].contains("test_step")) out.push_back(all[i]);
  }
  return out;
}

// Returns the value as text; "" if it is missing, null or zero.
std::string field_text(const json& object, const std::string& key) {
  if (!object.contains(key)) return "";
  const json& value = object[key];
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number() || value == 0) return "";
  return value.is_number_float() ? print_real(value.get<double>()) : value.dump();
}

// Returns the entries of a list of members.json that are objects.
std::vector<json> members_of(const json& members, const char* list) {
  std::vector<json> out;
  if (!members.contains(list) || !members[list].is_array()) return out;
  std::ranges::copy_if(members[list], std::back_inserter(out),
                       [](const json& entry) { return entry.is_object(); });
  return out;
}

// Returns why a run without a summary has ended, or "" if it may go on.
std::string failure(const std::string& folder, const std::vector<json>& left) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(folder + "/members.json", error);
  if (error || std::filesystem::file_time_type::clock::now() - written < kSilence) return "";
  const std::string log = read_tail(folder + "/log.txt", kMaxJobBytes);
  constexpr std::string_view kCode = "ended with exit code ";
  const size_t at = log.find(kCode);
  std::string out;
  if (at != std::string::npos) {
    out =
        "code " + log.substr(at + kCode.size(), log.find_first_of(":;\n", at) - at - kCode.size());
  }
  if (left.empty()) return out.empty() ? "ended without a summary" : out;
  const json& last = left.back();
  return out + (out.empty() ? "" : ": ") + field_text(last, "role") + " " +
         last.value("rank", json()).dump() + ": " + field_text(last, "reason");
}

std::string members_text(const std::vector<json>& members, const std::string& title) {
  std::string out = members.empty() ? "" : title + "\n";
  for (const json& member : members) {
    out += "  " + field_text(member, "role") + " " + member.value("rank", json()).dump();
    for (const char* key : {"host", "pid", "device", "step", "samples", "cpu_seconds",
                            "peak_rss_mib", "at_seconds", "reason"}) {
      const std::string value = field_text(member, key);
      if (!value.empty()) out += ", " + std::string(key) + " " + value;
    }
    out += "\n";
  }
  return out;
}

std::string facts(const std::string& folder, const json& summary, const MetricStyle& metric,
                  const std::optional<double>& value) {
  std::vector<std::pair<std::string, std::string>> out;
  if (value) out.emplace_back(metric.name, metric.value_text(*value));
  for (const auto& [name, key] : std::initializer_list<std::pair<const char*, const char*>>{
           {"steps", "steps"},
           {"samples", "samples"},
           {"seconds", "seconds"},
           {"samples per second", "samples_per_second"},
           {"training loss", "train_loss"},
           {"test loss", "test_loss"},
           {"weights (SHA-256)", "weights_sha256"},
           {"servers lost and replaced", "recoveries"},
           {"steps repeated", "steps_repeated"},
           {"checkpoints failed", "checkpoints_failed"},
           {"bad gradients", "bad_gradients"},
           {"pushes dropped", "pushes_dropped"},
           {"connections refused", "refused_peers"}}) {
    out.emplace_back(name, field_text(summary, key));
  }
  if (summary.contains("rejected_by_reason") && summary["rejected_by_reason"].is_object()) {
    for (const auto& [reason, count] : summary["rejected_by_reason"].items()) {
      out.emplace_back("messages rejected: " + reason, count.is_number() ? count.dump() : "");
    }
  }
  out.emplace_back("folder", folder);
  return html_facts(out);
}

}  // namespace

std::string run_report(const std::string& folder) {
  const std::string job_ini = read_text_file(folder + "/job.ini", kMaxJobBytes);
  const Job job = parse_job_text(job_ini, folder + "/job.ini");
  CompareRun run;
  run.strategy = job.strategy.to_string();
  read_run(folder, job.global_batch, run);
  const bool finished = run.failure.empty();
  const json members = read_object(folder + "/members.json");
  const std::vector<json> left = members_of(members, "left");
  json summary = finished ? read_object(folder + "/summary.json") : json::object();
  json metrics = read_metrics(folder + "/metrics.jsonl");
  for (auto line = metrics.rbegin(); run.metric.empty() && line != metrics.rend(); ++line) {
    if (!line->contains("heads") || !(*line)["heads"].is_array() || (*line)["heads"].empty())
      continue;
    if ((*line)["heads"][0].is_object()) run.metric = field_text((*line)["heads"][0], "metric");
  }
  std::set<std::string> ranks;  // of workers, those that left too
  for (const auto& list : {members_of(members, "members"), left}) {
    for (const json& member : list) {
      if (field_text(member, "role") == "worker") ranks.insert(member.value("rank", json()).dump());
    }
  }
  const auto workers = static_cast<int64_t>(std::max<size_t>(1, ranks.size()));
  run.workers = summary.value("workers", json(workers)).is_number()
                    ? summary.value("workers", workers)
                    : workers;
  const MetricStyle metric = style_of(run.metric);
  const std::string failed = finished ? "" : failure(folder, left);
  std::string state = "not finished: it goes on";
  if (!failed.empty()) state = "failed";
  if (finished)
    state = field_text(summary, "stopped_by").empty()
                ? "finished"
                : "stopped by " + field_text(summary, "stopped_by");
  if (!finished && !metrics.empty()) state += ", step " + metrics.back()["step"].dump();
  const Parts parts = {
      {"run", "yes"},
      {"title", html(job_title(job_ini) + ": " + variant_name(run))},
      {"subtitle",
       html(job_line(job_ini)) + " · seed " + std::to_string(job.seed) +
           (run.model_parameters > 0 ? " · " + plural(run.model_parameters, "parameter") : "")},
      {"where", html(state)},
      {"failed", html(failed)},
      {"metric", html(metric.title())},
      {"facts", facts(folder, summary, metric, run.test_value)},
      {"text", html(members_text(members_of(members, "members"), "processes") +
                    members_text(left, "processes that left"))},
      {"job", html(job_ini)}};
  const json data = {{"rows", {run.strategy}},
                     {"workers", run.workers},
                     {"metric", json::parse(metric_json(run.metric))},
                     {"summary", summary},
                     {"members", members},
                     {"metrics", metrics}};
  return report_page(parts, data.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace pushpull
