#include "cli/report/compare_result.h"

#include <algorithm>

#include "common/base/text.h"
#include "common/job/strategy.h"

namespace pushpull {

std::optional<Spread> spread(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return Spread{median, values.front(), values.back(), static_cast<int64_t>(values.size())};
}

std::string row_name(const std::string& strategy, const std::string& codec, int64_t stages) {
  return strategy + (codec.empty() ? "" : " " + codec) +
         (stages == 0 ? "" : ", " + plural(stages, "stage"));
}

std::string row_name(const CompareRun& run) {
  return row_name(run.strategy, run.codec, run.stages);
}

std::vector<std::string> row_names(const CompareResult& result) {
  std::vector<std::string> names;
  const bool swept = !result.codecs.empty() || !result.stages.empty();
  const auto one = [](auto values) {
    if (values.empty()) values.emplace_back();
    return values;
  };
  for (const std::string& strategy : result.strategies) {
    if (!swept) names.push_back(strategy);
    for (const int64_t stages : one(result.stages)) {
      for (const std::string& codec : one(result.codecs)) {
        const std::string name = row_name(strategy, codec, stages);
        const auto is_it = [&](const CompareRun& run) { return row_name(run) == name; };
        if (swept && std::ranges::any_of(result.runs, is_it)) names.push_back(name);
      }
    }
  }
  for (const CompareRun& run : result.runs) {
    if (std::ranges::count(names, row_name(run)) == 0) names.push_back(row_name(run));
  }
  return names;
}

std::optional<double> scaling(const CompareResult& result, const CompareRun& run) {
  if (!run.failure.empty()) return std::nullopt;
  const auto one = std::ranges::find_if(result.runs, [&](const CompareRun& other) {
    return other.workers == 1 && row_name(other) == row_name(run) && other.seed == run.seed &&
           other.link == run.link && other.failure.empty() && other.samples_per_second > 0.0;
  });
  if (one == result.runs.end()) return std::nullopt;
  return run.samples_per_second / one->samples_per_second;
}

namespace {

std::optional<double> until_target(const CompareRun& run, double cost) {
  if (!run.samples_to_target || run.samples <= 0) return std::nullopt;
  return cost * static_cast<double>(*run.samples_to_target) / static_cast<double>(run.samples);
}

}  // namespace

std::optional<double> cpu_seconds_to_target(const CompareRun& run) {
  if (run.cpu_seconds.empty()) return std::nullopt;
  double seconds = 0.0;
  for (const auto& [role, value] : run.cpu_seconds) seconds += value;
  return until_target(run, seconds);
}

std::optional<double> bytes_to_target(const CompareRun& run) {
  return until_target(run, static_cast<double>(run.bytes_pushed + run.bytes_pulled));
}

const CompareRun* sync_beside(const CompareResult& result, const CompareRun& run) {
  const auto sync = std::ranges::find_if(result.runs, [&](const CompareRun& other) {
    return other.strategy == "sync" && other.workers == run.workers && other.seed == run.seed &&
           other.link == run.link && other.codec == run.codec && other.stages == run.stages &&
           other.failure.empty();
  });
  return sync == result.runs.end() ? nullptr : &*sync;
}

std::string target_label(const CompareResult& result) {
  if (!result.target) return "";
  const std::string value = print_real(*result.target);
  return result.target_measure.empty() ? value : result.target_measure + " " + value;
}

bool shares_data_order(const CompareRun& run) { return !run.strategy.starts_with("backup:"); }

bool is_measured(const StepSplit& split) {
  return split.compute + split.push + split.wait + split.pull > 0.0;
}

double bytes_per_step(const CompareRun& run) {
  if (run.steps <= 0) return 0.0;
  return static_cast<double>(run.bytes_pushed + run.bytes_pulled) / static_cast<double>(run.steps);
}

double bytes_pushed_per_step(const CompareRun& run) {
  if (run.steps <= 0) return 0.0;
  return static_cast<double>(run.bytes_pushed) / static_cast<double>(run.steps);
}

StalenessSummary summarize(const std::map<int64_t, int64_t>& staleness) {
  StalenessSummary summary;
  double sum = 0.0;
  double updates = 0.0;
  for (const auto& [value, count] : staleness) {
    sum += static_cast<double>(value) * static_cast<double>(count);
    updates += static_cast<double>(count);
    summary.max = std::max(summary.max, value);
  }
  summary.mean = updates > 0.0 ? sum / updates : 0.0;
  return summary;
}

std::string variant_name(const std::string& row, int64_t workers, const std::string& link) {
  return row + ", " + plural(workers, "worker") + (link.empty() ? "" : " over " + link);
}

std::string variant_name(const CompareRun& run) {
  return variant_name(row_name(run), run.workers, run.link);
}

}  // namespace pushpull
