#include "cli/compare/compare_output.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/report/metric_style.h"
#include "cli/report/report_page.h"
#include "common/base/text.h"
#include "common/io/file.h"
#include "common/io/json.h"

namespace pushpull {
namespace {

using nlohmann::ordered_json;

ordered_json whole(std::optional<int64_t> value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

// Returns empty if no role reported the value.
std::optional<double> sum(const std::map<std::string, double>& roles) {
  if (roles.empty()) return std::nullopt;
  double total = 0.0;
  for (const auto& [role, value] : roles) total += value;
  return total;
}

ordered_json roles_json(const std::map<std::string, double>& roles) {
  ordered_json json = ordered_json::object();
  for (const auto& [role, value] : roles) json[role] = json_number(value);
  return json;
}

ordered_json staleness_json(const std::map<int64_t, int64_t>& staleness) {
  const StalenessSummary summary = summarize(staleness);
  ordered_json histogram = ordered_json::object();
  for (const auto& [value, updates] : staleness) histogram[std::to_string(value)] = updates;
  return {{"mean", json_number(summary.mean)}, {"max", summary.max}, {"histogram", histogram}};
}

// Returns null if the run did not report the split.
ordered_json split_json(const StepSplit& split) {
  if (!is_measured(split)) return nullptr;
  return {
      {"compute", split.compute}, {"push", split.push}, {"wait", split.wait}, {"pull", split.pull}};
}

// Returns the value if it is a share of the targets, else null.
ordered_json accuracy_json(const CompareRun& run, std::optional<double> value) {
  return style_of(run.metric).counts ? json_number(value) : ordered_json();
}

ordered_json curve_json(const CompareRun& run) {
  ordered_json json = ordered_json::array();
  for (const CurvePoint& point : run.curve) {
    json.push_back({{"seconds", json_number(point.seconds)},
                    {"samples", point.samples},
                    {"step", point.step},
                    {"test_accuracy", accuracy_json(run, point.test_value)},
                    {"test_value", json_number(point.test_value)},
                    {"test_loss", json_number(point.test_loss)},
                    {"train_loss", json_number(point.train_loss)}});
  }
  return json;
}

// Adds the run's measurements. All are null if the run failed.
void add_measures(const CompareResult& result, const CompareRun& run, ordered_json& json) {
  json["initial_weights_sha256"] = text_or_null(run.initial_weights_sha256);
  json["data_order_sha256"] = text_or_null(run.data_order_sha256);
  json["weights_sha256"] = text_or_null(run.weights_sha256);
  json["steps"] = run.steps;
  json["samples"] = run.samples;
  json["seconds"] = json_number(run.seconds);
  json["samples_per_second"] = json_number(run.samples_per_second);
  json["scaling"] = json_number(scaling(result, run));
  json["train_loss"] = json_number(run.train_loss);
  json["test_loss"] = json_number(run.test_loss);
  json["test_accuracy"] = accuracy_json(run, run.test_value);
  json["metric"] = text_or_null(run.metric);
  json["test_value"] = json_number(run.test_value);
  json["seconds_to_target"] = json_number(run.seconds_to_target);
  json["samples_to_target"] = whole(run.samples_to_target);
  json["cpu_seconds_to_target"] = json_number(cpu_seconds_to_target(run));
  json["bytes_to_target"] = json_number(bytes_to_target(run));
  json["split"] = split_json(run.split);
  json["staleness"] = staleness_json(run.staleness);
  json["bytes_pushed"] = run.bytes_pushed;
  json["bytes_pulled"] = run.bytes_pulled;
  json["bytes_pushed_per_step"] = json_number(bytes_pushed_per_step(run));
  json["bytes_per_step"] = json_number(bytes_per_step(run));
  json["pushes_applied"] = run.pushes_applied;
  json["pushes_dropped"] = run.pushes_dropped;
  json["cpu_seconds"] = json_number(sum(run.cpu_seconds));
  json["cpu_seconds_per_role"] = roles_json(run.cpu_seconds);
  json["peak_mib"] = roles_json(run.peak_mib);
  json["other_cores"] = json_number(run.other_cores);
  json["curve"] = curve_json(run);
}

ordered_json run_json(const CompareResult& result, const CompareRun& run) {
  ordered_json json;
  json["strategy"] = run.strategy;
  json["workers"] = run.workers;
  json["servers"] = run.servers;
  json["seed"] = run.seed;
  json["link"] = text_or_null(run.link);
  json["codec"] = text_or_null(run.codec);
  json["stages"] = run.stages > 0 ? ordered_json(run.stages) : ordered_json(nullptr);
  json["tuned"] = text_or_null(run.tuned);
  json["out"] = run.out;
  json["failure"] = text_or_null(run.failure);
  json["exit_code"] = run.exit_code;
  ordered_json measures;
  add_measures(result, run, measures);
  for (const auto& [key, value] : measures.items()) {
    json[key] = run.failure.empty() ? value : ordered_json(nullptr);
  }
  return json;
}

ordered_json runs_json(const CompareResult& result, const std::vector<CompareRun>& runs) {
  ordered_json json = ordered_json::array();
  for (const CompareRun& run : runs) json.push_back(run_json(result, run));
  return json;
}

ordered_json links_json(const std::vector<LinkMeasured>& links) {
  ordered_json json = ordered_json::array();
  for (const LinkMeasured& link : links) {
    json.push_back({{"asked", link.asked},
                    {"bytes_per_second", json_number(link.bytes_per_second)},
                    {"round_trip_ms", json_number(link.round_trip_ms)},
                    {"how", link.how}});
  }
  return json;
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string cell(std::optional<double> value) {
  return value && std::isfinite(*value) ? print_real(*value) : std::string();
}

std::string cell(const std::map<std::string, double>& roles, const char* role) {
  const auto found = roles.find(role);
  return found == roles.end() ? std::string() : cell(found->second);
}

using FieldRow = std::vector<std::pair<const char*, std::string>>;  // header, field

FieldRow settings_row(const CompareRun& run) {
  return {{"strategy", run.strategy},
          {"workers", std::to_string(run.workers)},
          {"servers", std::to_string(run.servers)},
          {"seed", std::to_string(run.seed)},
          {"link", run.link},
          {"codec", run.codec},
          {"stages", run.stages > 0 ? std::to_string(run.stages) : ""},
          {"tuned", run.tuned},
          {"failure", run.failure},
          {"exit_code", std::to_string(run.exit_code)}};
}

FieldRow measures_row(const CompareResult& result, const CompareRun& run) {
  const StalenessSummary staleness = summarize(run.staleness);
  const auto samples = run.samples_to_target;
  const auto part = [&](double StepSplit::*value) {
    return is_measured(run.split) ? cell(run.split.*value) : std::string();
  };
  return {{"samples_per_second", cell(run.samples_per_second)},
          {"scaling", cell(scaling(result, run))},
          {"steps", std::to_string(run.steps)},
          {"samples", std::to_string(run.samples)},
          {"seconds", cell(run.seconds)},
          {"compute_seconds_per_step", part(&StepSplit::compute)},
          {"push_seconds_per_step", part(&StepSplit::push)},
          {"wait_seconds_per_step", part(&StepSplit::wait)},
          {"pull_seconds_per_step", part(&StepSplit::pull)},
          {"staleness_mean", cell(staleness.mean)},
          {"staleness_max", std::to_string(staleness.max)},
          {"bytes_pushed", std::to_string(run.bytes_pushed)},
          {"bytes_pulled", std::to_string(run.bytes_pulled)},
          {"bytes_pushed_per_step", cell(bytes_pushed_per_step(run))},
          {"bytes_per_step", cell(bytes_per_step(run))},
          {"pushes_applied", std::to_string(run.pushes_applied)},
          {"pushes_dropped", std::to_string(run.pushes_dropped)},
          {"train_loss", cell(run.train_loss)},
          {"test_loss", cell(run.test_loss)},
          {"test_accuracy", style_of(run.metric).counts ? cell(run.test_value) : std::string()},
          {"metric", run.metric},
          {"test_value", cell(run.test_value)},
          {"seconds_to_target", cell(run.seconds_to_target)},
          {"samples_to_target", samples ? std::to_string(*samples) : std::string()},
          {"cpu_seconds", cell(sum(run.cpu_seconds))},
          {"cpu_seconds_server", cell(run.cpu_seconds, "server")},
          {"cpu_seconds_worker", cell(run.cpu_seconds, "worker")},
          {"peak_mib_server", cell(run.peak_mib, "server")},
          {"peak_mib_worker", cell(run.peak_mib, "worker")},
          {"other_cores", cell(run.other_cores)},
          {"initial_weights_sha256", run.initial_weights_sha256},
          {"data_order_sha256", run.data_order_sha256},
          {"weights_sha256", run.weights_sha256},
          {"out", run.out}};
}

// Leaves the measurements of a failed run empty.
FieldRow row_of(const CompareResult& result, const CompareRun& run) {
  FieldRow row = settings_row(run);
  for (auto& [name, field] : measures_row(result, run)) {
    const bool known = run.failure.empty() || std::string_view(name) == "out";
    row.emplace_back(name, known ? field : std::string());
  }
  return row;
}

ordered_json whole_json(const CompareResult& result) {
  ordered_json json;
  json["command"] = result.command;
  json["version"] = result.version;
  json["commit"] = text_or_null(result.commit);
  json["began"] = result.began;
  json["seconds"] = json_number(result.seconds);
  json["machine"] = result.machine;
  json["over"] = text_or_null(result.over);
  json["cores"] = result.cores;
  json["congestion_control"] = text_or_null(result.congestion_control);
  json["libraries"] = result.libraries;
  json["model_parameters"] =
      result.model_parameters > 0 ? ordered_json(result.model_parameters) : ordered_json();
  const bool counts = style_of(result.metric).counts && result.target_measure.empty();
  json["target_accuracy"] = counts ? json_number(result.target) : ordered_json();
  json["metric"] = text_or_null(result.metric);
  json["target"] = json_number(result.target);
  json["target_measure"] = text_or_null(result.target_measure);
  json["straggler"] = text_or_null(result.straggler);
  json["worker"] = text_or_null(result.worker);
  json["device"] = text_or_null(result.device);
  json["server_device"] = text_or_null(result.server_device);
  json["links"] = links_json(result.links);
  json["strategies"] = result.strategies;
  json["codecs"] = result.codecs;
  json["stages"] = result.stages;
  json["workers"] = result.workers;
  json["notes"] = result.notes;
  json["job_ini"] = result.job_ini;
  json["runs"] = runs_json(result, result.runs);
  json["tuning"] = runs_json(result, result.tuning);
  return json;
}

// The command and paths may contain arbitrary bytes.
std::string dumped(const ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

// Returns the result with fewer points in its curves, if they would make the page large.
CompareResult thinned(CompareResult result) {
  constexpr size_t kPoints = 30'000;  // of all curves, about 5 MB
  size_t points = 0;
  for (const CompareRun& run : result.runs) points += run.curve.size();
  const size_t each = points / kPoints + 1;
  for (CompareRun& run : result.runs) {
    for (size_t i = 0, kept = 0; each > 1 && i < run.curve.size(); ++i) {
      const bool last = i + 1 == run.curve.size();
      if (i % each == 0 || last) run.curve[kept++] = run.curve[i];
      if (last) run.curve.resize(kept);
    }
  }
  return result;
}

// Returns whether runs of a seed have different hashes, where they should have the same.
bool differs(const CompareResult& result, std::string CompareRun::*hash) {
  std::map<uint64_t, std::set<std::string>> seeds;
  for (const CompareRun& run : result.runs) {
    const bool counts = hash != &CompareRun::data_order_sha256 || shares_data_order(run);
    if (run.failure.empty() && counts && !(run.*hash).empty()) seeds[run.seed].insert(run.*hash);
  }
  return std::ranges::any_of(seeds, [](const auto& seed) { return seed.second.size() > 1; });
}

std::string libraries_text(const CompareResult& result) {
  std::string text;
  for (const auto& [name, version] : result.libraries) {
    text.append(text.empty() ? "" : ", ").append(name).append(" ").append(version);
  }
  return text;
}

}  // namespace

std::string compare_json(const CompareResult& result) {
  return dumped(whole_json(result), 2) + "\n";
}

std::string compare_page(const CompareResult& result) {
  const MetricStyle metric = style_of(result.metric);
  const bool has_target = result.target && std::isfinite(*result.target);
  const std::string title = job_title(result.job_ini);
  const auto failed = std::ranges::count_if(
      result.runs, [](const CompareRun& run) { return !run.failure.empty(); });
  Parts parts = {{"compare", "yes"},
                 {"title", html(title + (title.empty() ? "" : ": ") + "strategies compared")},
                 {"subtitle", html(job_line(result.job_ini))},
                 {"where", html(result.machine + " · " + result.began)},
                 {"metric", html(metric.title())},
                 {"command", html(result.command)},
                 {"text", html(compare_text(result))},
                 {"job", html(result.job_ini)}};
  if (result.model_parameters > 0) {
    parts["subtitle"] += " · " + plural(result.model_parameters, "parameter");
  }
  if (failed > 0) {
    parts["failed"] = std::to_string(failed) + " of " +
                      plural(static_cast<int64_t>(result.runs.size()), "run") +
                      ". Of the medians only those of the target count them, as not reached.";
  }
  if (differs(result, &CompareRun::initial_weights_sha256) ||
      differs(result, &CompareRun::data_order_sha256)) {
    parts["unfair"] = "yes";
  }
  for (const std::string& note : result.notes) parts["notes"] += "<li>" + html(note) + "</li>";
  parts["provenance"] = html_facts(
      {{"pushpull", result.version},
       {"commit", result.commit.empty() ? "unknown" : result.commit},
       {"libraries", libraries_text(result)},
       {"machine", result.machine},
       {"tasks started over", result.over},
       {"program of the workers", result.worker},
       {"device of the workers", result.device},
       {"device of the servers", result.server_device},
       {"TCP congestion control", result.congestion_control},
       {"began", result.began},
       {"took", clock_text(result.seconds)},
       {"target", !has_target                     ? "none asked for"
                  : result.target_measure.empty() ? metric.target_text(*result.target)
                                                  : target_label(result)},
       {"straggler", result.straggler.empty() ? "none" : result.straggler + " (rank:factor)"}});
  ordered_json json = whole_json(thinned(result));
  for (ordered_json& run : json["runs"]) {  // JavaScript's numbers have 53 bits
    run["seed"] = std::to_string(run["seed"].get<uint64_t>());
  }
  json.erase("tuning");
  return report_page(parts, "{\"rows\":" + dumped(row_names(result), -1) +
                                ",\"metric\":" + metric_json(result.metric) +
                                ",\"compare\":" + dumped(json, -1) + "}");
}

std::string compare_csv(const CompareResult& result) {
  std::string text;
  const auto add = [&text](const FieldRow& row, bool header) {
    for (size_t i = 0; i < row.size(); ++i) {
      text.append(i == 0 ? "" : ",").append(header ? row[i].first : quoted(row[i].second));
    }
    text += "\n";
  };
  add(row_of(result, CompareRun{}), true);
  for (const CompareRun& run : result.runs) add(row_of(result, run), false);
  return text;
}

void write_results(const CompareResult& result, const std::string& folder) {
  write_file(folder + "/compare.json", compare_json(result));
  write_file(folder + "/compare.csv", compare_csv(result));
  write_file(folder + "/report.html", compare_page(result));
}

}  // namespace pushpull
