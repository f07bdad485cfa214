#include "cli/report/compare_read.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/text.h"
#include "common/io/file.h"

namespace pushpull {
namespace {

using nlohmann::json;

constexpr int64_t kMaxSummaryBytes = int64_t{64} << 20;
constexpr int64_t kMaxMetricsBytes = int64_t{256} << 20;

// Returns null if `object` is not an object or has no such member.
const json* member(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::optional<double> real(const json& object, const char* key) {
  const json* const value = member(object, key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const double number = value->get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> integer(const json& object, const char* key) {
  const json* const value = member(object, key);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return value->get<int64_t>();
}

std::string text(const json& object, const char* key) {
  const json* const value = member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

const json& object_at(const json& parent, const char* key) {
  static const json none = json::object();
  const json* const value = member(parent, key);
  return value != nullptr && value->is_object() ? *value : none;
}

std::map<std::string, double> by_role(const json& parent, const char* key) {
  std::map<std::string, double> roles;
  for (const auto& [role, value] : object_at(parent, key).items()) {
    if (value.is_number()) roles[role] = value.get<double>();
  }
  return roles;
}

std::map<int64_t, int64_t> histogram(const json& staleness) {
  std::map<int64_t, int64_t> updates;
  for (const auto& [value, count] : object_at(staleness, "histogram").items()) {
    const std::optional<int64_t> key = parse_int64(value);
    if (key && count.is_number_integer()) updates[*key] = count.get<int64_t>();
  }
  return updates;
}

// The first head of an evaluation. Files of older programs have no heads.
struct FirstHead {
  std::string metric;
  std::optional<double> value;
};

FirstHead first_head(const json& evaluation) {
  if (const json* heads = member(evaluation, "heads")) {
    if (!heads->is_array() || heads->empty()) return {};
    return {text(heads->front(), "metric"), real(heads->front(), "value")};
  }
  if (const auto accuracy = real(evaluation, "test_accuracy")) return {"accuracy", accuracy};
  const std::optional<int64_t> correct = integer(evaluation, "test_correct");
  const std::optional<int64_t> total = integer(evaluation, "test_total");
  if (!correct || !total || *total <= 0) return {};
  return {"accuracy", static_cast<double>(*correct) / static_cast<double>(*total)};
}

// Returns the heads of an evaluation, the first one alone if the file is of an older program.
std::vector<HeadInfo> heads_of(const json& evaluation) {
  const json* heads = member(evaluation, "heads");
  if (heads == nullptr || !heads->is_array()) {
    const std::optional<Metric> metric = metric_of(first_head(evaluation).metric);
    return metric ? std::vector<HeadInfo>{{"", *metric}} : std::vector<HeadInfo>();
  }
  std::vector<HeadInfo> out;
  for (const json& head : *heads) {
    const std::optional<Metric> metric = metric_of(text(head, "metric"));
    if (!metric) break;  // of a newer program
    out.push_back({text(head, "name"), *metric});
  }
  return out;
}

std::optional<double> value_of(const json& evaluation, const MeasureName& name) {
  const std::optional<Measure> measure = find_measure(name, heads_of(evaluation));
  if (!measure) return std::nullopt;
  const json* heads = member(evaluation, "heads");
  if (heads != nullptr && heads->is_array()) {
    return real((*heads)[measure->head], measure->is_loss ? "loss" : "value");
  }
  return measure->is_loss ? real(evaluation, "test_loss") : first_head(evaluation).value;
}

void read_summary(const json& summary, CompareRun& run) {
  run.model_parameters = integer(summary, "model_parameters").value_or(0);
  run.initial_weights_sha256 = text(summary, "initial_weights_sha256");
  run.data_order_sha256 = text(summary, "data_order_sha256");
  run.weights_sha256 = text(summary, "weights_sha256");
  run.steps = integer(summary, "steps").value_or(0);
  run.samples = integer(summary, "samples").value_or(0);
  run.seconds = real(summary, "seconds").value_or(0.0);
  run.samples_per_second = real(summary, "samples_per_second").value_or(0.0);
  run.train_loss = real(summary, "train_loss");
  run.test_loss = real(summary, "test_loss");
  const FirstHead head = first_head(summary);
  run.metric = head.metric;
  run.test_value = head.value;
  run.heads = heads_of(summary);
  const json& split = object_at(summary, "split");
  run.split = {real(split, "compute").value_or(0.0), real(split, "push").value_or(0.0),
               real(split, "wait").value_or(0.0), real(split, "pull").value_or(0.0)};
  run.staleness = histogram(object_at(summary, "staleness"));
  run.bytes_pushed = integer(summary, "bytes_pushed").value_or(0);
  run.bytes_pulled = integer(summary, "bytes_pulled").value_or(0);
  run.pushes_applied = integer(summary, "pushes_applied").value_or(0);
  run.pushes_dropped = integer(summary, "pushes_dropped").value_or(0);
  run.cpu_seconds = by_role(summary, "cpu_seconds");
  run.peak_mib = by_role(summary, "peak_rss_mib");
}

constexpr std::string_view kLauncherTag = "[run] ";

// Returns how the process in a line such as "[run] worker 0 (pid 7) ended with exit code 1" explains
// its end: its last line, such as an exception, or else that line. Returns `other` if it is another
// line.
std::string words_of_failed(const std::string& line,
                            const std::map<std::string, std::string>& last_of,
                            const std::string& other) {
  const size_t pid = line.find(" (pid ");
  if (pid == std::string::npos || line.find(" ended with ") == std::string::npos) return other;
  if (const size_t reason = line.find("): ["); reason != std::string::npos) {
    return line.substr(reason + 3);  // as the coordinator knows it
  }
  const auto last = last_of.find(line.substr(kLauncherTag.size(), pid - kLauncherTag.size()));
  const bool early = line.find(" before training began") != std::string::npos;
  return last == last_of.end() || early ? line.substr(0, line.find("; ")) : last->second;
}

std::string one_line(std::string_view text) {
  constexpr size_t kMaxBytes = 300;
  return printable(trim(text), kMaxBytes);
}

}  // namespace

std::string read_tail(const std::string& path, int64_t limit_bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto size = static_cast<int64_t>(file.tellg());
  file.seekg(std::max<int64_t>(0, size - limit_bytes));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<CurvePoint> read_curve(const std::string& metrics, int64_t global_batch,
                                   const MeasureName& target) {
  std::vector<CurvePoint> curve;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const json entry = parse_json(line);
    const std::optional<double> seconds = real(entry, "seconds");
    const std::optional<int64_t> step = integer(entry, "test_step");
    if (!seconds || !step) continue;
    const std::optional<double> value = first_head(entry).value;
    if (!value) continue;
    CurvePoint point;
    // The time when the weights were complete; training has moved on by the time the result
    // arrives.
    point.seconds = real(entry, "test_seconds").value_or(*seconds);
    point.samples = integer(entry, "test_samples").value_or(*step * global_batch);
    point.step = *step;
    point.test_value = *value;
    point.target_value = value_of(entry, target);
    point.test_loss = real(entry, "test_loss");
    point.train_loss = real(entry, "loss");
    // After a lost server the run returned to a checkpoint: the later evaluation of a step counts.
    while (!curve.empty() && curve.back().step >= point.step) curve.pop_back();
    curve.push_back(point);
  }
  return curve;
}

void find_target(const std::optional<Target>& target, CompareRun& run) {
  run.seconds_to_target.reset();
  run.samples_to_target.reset();
  if (!target) return;
  const std::optional<Measure> measure = find_measure(target->name, run.heads);
  if (!measure) return;
  const auto first = std::ranges::find_if(run.curve, [&](const CurvePoint& point) {
    if (!point.target_value) return false;
    return measure->higher_is_better ? *point.target_value >= target->value
                                     : *point.target_value <= target->value;
  });
  if (first == run.curve.end()) return;
  run.seconds_to_target = first->seconds;
  run.samples_to_target = first->samples;
}

void read_run(const std::string& folder, int64_t global_batch, CompareRun& run,
              const MeasureName& target) {
  const std::string path = folder + "/summary.json";
  std::string bytes;
  try {
    bytes = read_text_file(path, kMaxSummaryBytes);
  } catch (const Error& error) {
    run.failure = error.what();
    return;
  }
  const json summary = parse_json(bytes);
  if (!summary.is_object() || !real(summary, "samples_per_second")) {
    run.failure = "[compare] " + path + " is damaged: no JSON object with samples_per_second";
    return;
  }
  read_summary(summary, run);
  run.curve =
      read_curve(read_tail(folder + "/metrics.jsonl", kMaxMetricsBytes), global_batch, target);
}

std::string failure_line(const std::string& log, int exit_code) {
  std::string killed;  // the first: others are consequences
  std::string cause;   // the last error before the other processes were stopped, which then report
                       // that
  std::string last_error;
  std::string own;  // of a process that has failed the job and reported no error of ours
  std::string last_line;
  std::map<std::string, std::string> last_of;  // process -> its last line
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (trim(line).empty()) continue;
    last_line = line;
    const bool of_launcher = line.starts_with(kLauncherTag);
    if (killed.empty() && of_launcher && line.find(" was killed by ") != line.npos) {
      killed = line.substr(0, line.find(';'));
    }
    if (cause.empty() && of_launcher && line.find("; stopping") != line.npos) {
      cause = last_error;
    }
    if (of_launcher && last_error.empty()) own = words_of_failed(line, last_of, own);
    const size_t bar = line.find(" | ");
    if (bar != std::string::npos) last_of[line.substr(0, bar)] = line.substr(bar + 3);
    const size_t error = line.find("error: [");
    if (error != std::string::npos) last_error = line.substr(line.find('[', error));
  }
  if (exit_code > 128 && !killed.empty()) cause = killed;
  std::string best = last_line;
  for (const std::string& better : {last_error, own, cause}) {
    if (!better.empty()) best = better;
  }
  if (best.empty()) return "exit code " + std::to_string(exit_code) + ", and its log is empty";
  return one_line(best) + " (exit code " + std::to_string(exit_code) + ")";
}

}  // namespace pushpull
