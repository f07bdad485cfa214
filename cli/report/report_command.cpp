// `pushpull report`.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "cli/report/compare_read.h"
#include "cli/report/metric_style.h"
#include "cli/report/report_page.h"
#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/text.h"
#include "common/io/file.h"
#include "common/job/command_line.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"

namespace pushpull {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTextBytes = int64_t{64} << 20;
constexpr int64_t kMaxMetricsBytes = int64_t{256} << 20;
constexpr size_t kMaxLines = 4000;                   // of metrics; more cannot be seen
constexpr auto kSilence = std::chrono::seconds(15);  // members.json is renewed each second

json object_in(const std::string& text) {
  json out = parse_json(text);
  return out.is_object() ? out : json::object();
}

// Returns the complete lines, thinned out if there are many. Evaluations and losses stay, and so do
// the lines around a return to a checkpoint.
json read_metrics(const std::string& path) {
  std::vector<json> all;
  std::istringstream lines(read_tail(path, kMaxMetricsBytes));
  for (std::string line; std::getline(lines, line);) {
    json entry = object_in(line);
    if (entry["seconds"].is_number() && entry["step"].is_number()) all.push_back(std::move(entry));
  }
  const size_t each = all.size() / kMaxLines + 1;
  json out = json::array();
  for (size_t i = 0; i < all.size(); ++i) {
    const bool last = i + 1 == all.size() || all[i + 1].contains("back_to_step");
    const bool told = all[i].contains("lost") || all[i].contains("test_step");
    if (i % each == 0 || last || told) out.push_back(all[i]);
  }
  return out;
}

// Returns the value as text; "" if it is missing, null or zero.
std::string field_text(const json& object, const std::string& key) {
  const json value = object.value(key, json());
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number() || value == 0) return "";
  return value.is_number_float() ? print_real(value.get<double>()) : value.dump();
}

// Returns why a run without a summary has ended, or "" if it may go on.
std::string failure(const std::string& folder, const json& members) {
  const json code = members.value("exit_code", json());
  if (code.is_number_integer()) {
    return code_text(code.get<int>()) + ": " + field_text(members, "failure");
  }
  std::error_code error;
  const auto written = std::filesystem::last_write_time(folder + "/members.json", error);
  const bool silent = !error && std::filesystem::file_time_type::clock::now() - written >= kSilence;
  return silent ? "its first server has written nothing since then; it was killed, or its host"
                  " has failed"
                : "";
}

// Returns the figures of summary.json that are not zero.
std::string facts(const json& summary, const CompareRun& run) {
  const MetricStyle metric = style_of(run.metric);
  std::vector<std::pair<std::string, std::string>> out = {
      {metric.name, run.test_value ? metric.value_text(*run.test_value) : ""}};
  for (const char* key :
       {"steps", "samples", "seconds", "samples_per_second", "train_loss", "test_loss",
        "weights_sha256", "recoveries", "steps_repeated", "checkpoints_failed", "bad_gradients",
        "pushes_dropped", "rejected_frames", "refused_peers"}) {
    out.emplace_back(key, field_text(summary, key));
    std::ranges::replace(out.back().first, '_', ' ');
  }
  const json rejected = summary.value("rejected_by_reason", json::object());
  for (const auto& [reason, count] : rejected.items()) {
    out.emplace_back("rejected: " + reason, count.is_number() ? count.dump() : "");
  }
  return html_facts(out);
}

}  // namespace

const ProgramHelp& report_help() {
  static const ProgramHelp help = {.name = "pushpull report",
                                   .summary = "writes OUT/report.html, one page about a run",
                                   .usage = {"pushpull report OUT"},
                                   .words = "DIR"};
  return help;
}

int report_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, {}, JobFlags::kRefuse);
  if (print_help(line, report_help(), PUSHPULL_VERSION)) return 0;
  if (line.positional.size() != 1 || line.positional.front().empty()) {
    throw Error(ErrorCode::kUsage,
                "[report] the folder of one run must be named: pushpull report OUT");
  }
  const std::string& folder = line.positional.front();
  std::error_code error;
  if (!std::filesystem::exists(folder + "/job.ini", error)) {
    throw Error(ErrorCode::kUsage,
                "[report] " + printable(folder, kMaxPathBytes) + "/job.ini " +
                    (error ? "cannot be read: " + error.message() : "does not exist") +
                    ": name the --out of a run that has begun to train");
  }
  const std::string path = folder + "/report.html";
  write_file(path, run_page(folder));
  std::cout << "wrote " << printable(path, kMaxPathBytes) << std::endl;
  return 0;
}

std::string run_page(const std::string& folder) {
  const std::string job_ini = read_text_file(folder + "/job.ini", kMaxTextBytes);
  const Job job = parse_job_text(job_ini, folder + "/job.ini");
  CompareRun run;
  run.strategy = job.strategy.to_string();
  read_run(folder, job.global_batch, run);
  const bool finished = run.failure.empty();
  const std::string members_text = read_tail(folder + "/members.json", kMaxTextBytes);
  const json members = object_in(members_text);
  const json summary =
      object_in(finished ? read_tail(folder + "/summary.json", kMaxTextBytes) : "");
  const json metrics = read_metrics(folder + "/metrics.jsonl");
  for (const json& line : metrics) {  // of the newest evaluation
    const json name = line.value(json::json_pointer("/heads/0/metric"), json());
    if (name.is_string() && !finished) run.metric = name.get<std::string>();
  }
  const json workers = (finished ? summary : members).value("workers", json());
  if (workers.is_number_integer()) run.workers = workers.get<int64_t>();
  const std::string failed = finished ? "" : failure(folder, members);
  const std::string stopped = field_text(summary, "stopped_by");
  std::string state = finished         ? "finished"
                      : failed.empty() ? "not finished: it goes on"
                                       : "failed";
  if (!stopped.empty()) {
    state = "stopped at step " + field_text(summary, "steps") + " of " +
            field_text(summary, "total_steps") + " by " + stopped;
  }
  if (!finished && !metrics.empty()) state += ", step " + metrics.back()["step"].dump();
  std::string subtitle = job_line(job_ini) + " · seed " + std::to_string(job.seed);
  if (run.model_parameters > 0) subtitle += " · " + plural(run.model_parameters, "parameter");
  const Parts parts = {{"run", "yes"},
                       {"title", html(job_title(job_ini) + ": " + variant_name(run))},
                       {"subtitle", html(subtitle)},
                       {"where", html(state + " · " + folder)},
                       {"failed", html(failed)},
                       {"metric", html(style_of(run.metric).title())},
                       {"facts", facts(summary, run)},
                       {"text", html(members_text)},
                       {"job", html(job_ini)}};
  const json data = {{"rows", {run.strategy}}, {"workers", run.workers},
                     {"summary", summary},     {"members", members},
                     {"metrics", metrics},     {"metric", json::parse(metric_json(run.metric))}};
  return report_page(parts, data.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace pushpull
