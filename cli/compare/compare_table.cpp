// A comparison as tables for a terminal.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <numeric>

#include "cli/compare/compare_output.h"
#include "cli/report/metric_style.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

using Row = std::vector<std::string>;
using Figure = std::function<std::optional<double>(const CompareRun&)>;

constexpr double kMilli = 1e3;
constexpr double kMega = 1e6;

// Prints large numbers with fewer decimals, to keep the tables narrow.
std::string digits_of(double value, int digits) {
  if (std::isinf(value)) return "never";
  const double size = std::abs(value);
  digits = std::min(digits, size >= 1000.0 ? 0 : size >= 100.0 ? 1 : digits);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

// The runs of one row.
struct Group {
  std::vector<const CompareRun*> all;
  std::vector<const CompareRun*> well;

  std::vector<double> values(const Figure& measure) const { return values_of(well, measure); }
  static std::vector<double> values_of(const std::vector<const CompareRun*>& runs,
                                       const Figure& measure) {
    std::vector<double> found;
    for (const CompareRun* run : runs) {
      if (const std::optional<double> value = measure(*run)) found.push_back(*value);
    }
    return found;
  }
  // Returns the median alone, without the range.
  std::string median(const Figure& measure, int digits) const {
    const std::optional<Spread> found = spread(values(measure));
    return found ? digits_of(found->median, digits) : "-";
  }
  std::string with_range(const Figure& measure, int digits) const {
    return spread_text(values(measure), digits);
  }
  // Covers all runs; "-" if none succeeded.
  std::string target_text(const Figure& measure, int digits) const {
    return well.empty() ? "-" : spread_text(values_of(all, measure), digits);
  }
  std::string runs() const {
    const size_t failed = all.size() - well.size();
    const std::string whole = std::to_string(all.size());
    return failed == 0 ? whole : std::to_string(failed) + " of " + whole + " FAILED";
  }
};

// Returns the links in the order of their first run.
std::vector<std::string> links_of(const CompareResult& result) {
  std::vector<std::string> links;
  for (const CompareRun& run : result.runs) {
    if (std::ranges::count(links, run.link) == 0) links.push_back(run.link);
  }
  return links;
}

Group group_of(const CompareResult& result, const std::string& row, int64_t workers,
               const std::string& link) {
  Group group;
  for (const CompareRun& run : result.runs) {
    if (row_name(run) != row || run.workers != workers || run.link != link) continue;
    group.all.push_back(&run);
    if (run.failure.empty()) group.well.push_back(&run);
  }
  return group;
}

// Returns the groups sorted by link, then by number of workers, then in the order of the
// strategies.
std::vector<Group> groups_of(const CompareResult& result) {
  std::vector<Group> groups;
  for (const std::string& link : links_of(result)) {
    for (const int64_t workers : result.workers) {
      for (const std::string& row : row_names(result)) {
        groups.push_back(group_of(result, row, workers, link));
        if (groups.back().all.empty()) groups.pop_back();
      }
    }
  }
  return groups;
}

// If all runs used loopback, the tables need no link column.
bool has_links(const CompareResult& result) {
  return std::ranges::any_of(result.runs, [](const CompareRun& run) { return !run.link.empty(); });
}

// Returns the first cells of a row: strategy, workers, and link, codec and stages if they vary.
Row begin_row(const CompareResult& result, const Group& group) {
  const CompareRun& first = *group.all.front();
  Row row = {first.strategy, std::to_string(first.workers)};
  if (has_links(result)) row.push_back(first.link.empty() ? "loopback" : first.link);
  if (!result.codecs.empty()) row.push_back(first.codec);
  if (!result.stages.empty()) row.push_back(std::to_string(first.stages));
  return row;
}

// Returns the number of these cells.
size_t names_of(const CompareResult& result) {
  return 2 + (has_links(result) ? 1 : 0) + (result.codecs.empty() ? 0 : 1) +
         (result.stages.empty() ? 0 : 1);
}

// Inserts the headings of the columns that begin_row adds after the workers.
void add_places(const CompareResult& result, Row& header, bool names) {
  auto at = header.begin() + 2;
  if (has_links(result)) at = header.insert(at, names ? "link" : "") + 1;
  if (!result.codecs.empty()) at = header.insert(at, names ? "codec" : "") + 1;
  if (!result.stages.empty()) header.insert(at, names ? "stages" : "");
}

std::optional<double> positive(double value) {
  return value > 0.0 ? std::optional(value) : std::nullopt;
}

std::optional<double> of_role(const std::map<std::string, double>& roles, const char* role) {
  const auto found = roles.find(role);
  return found == roles.end() ? std::nullopt : std::optional(found->second);
}

Figure cpu(const char* role) {
  return [role](const CompareRun& run) { return of_role(run.cpu_seconds, role); };
}

Figure peak(const char* role) {
  return [role](const CompareRun& run) { return of_role(run.peak_mib, role); };
}

Figure milliseconds(double StepSplit::*part) {
  return [part](const CompareRun& run) -> std::optional<double> {
    return is_measured(run.split) ? std::optional(run.split.*part * kMilli) : std::nullopt;
  };
}

// An unreached target counts as later than every time, also in a failed run, so that failures do
// not improve the median over all runs.
template <class T>
Figure to_target(std::optional<T> CompareRun::*value) {
  return [value](const CompareRun& run) -> std::optional<double> {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    return run.*value ? static_cast<double>(*(run.*value)) : kNever;
  };
}

std::string staleness(const Group& group) {
  int64_t most = 0;
  std::vector<double> means;
  for (const CompareRun* run : group.well) {
    const StalenessSummary summary = summarize(run->staleness);
    means.push_back(summary.mean);
    most = std::max(most, summary.max);
  }
  const std::optional<Spread> mean = spread(means);
  return mean ? digits_of(mean->median, 1) + "/" + std::to_string(most) : "-";
}

std::string tuned(const Group& group) {
  return group.all.front()->tuned.empty() ? "-" : group.all.front()->tuned;
}

// Returns megabytes per step; if codecs are compared, preceded by the pushed part.
std::string megabytes(const CompareResult& result, const Group& group) {
  const auto all = [](const CompareRun& run) { return positive(bytes_per_step(run) / kMega); };
  const auto pushed = [](const CompareRun& run) {
    return positive(bytes_pushed_per_step(run) / kMega);
  };
  return (result.codecs.empty() ? "" : group.median(pushed, 3) + "/") + group.median(all, 3);
}

}  // namespace

std::string in_columns(const std::vector<std::vector<std::string>>& rows, size_t names,
                       size_t width) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size() + 2);
  }
  const auto own = widths.begin() + static_cast<std::ptrdiff_t>(std::min(names, widths.size()));
  const size_t before = std::accumulate(widths.begin(), own, size_t{0});
  std::string text;
  for (size_t begin = names, end = begin; begin < widths.size(); begin = end) {
    size_t used = before;
    do used += widths[end++];
    while (end < widths.size() && used + widths[end] <= width);
    if (begin > names) text += "\n";
    for (const Row& row : rows) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        if (i >= names && (i < begin || i >= end)) continue;
        const std::string blanks(widths[i] - 2 - row[i].size(), ' ');
        line.append("  ").append(i == 0 ? row[i] + blanks : blanks + row[i]);
      }
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
  }
  return text;
}

std::string spread_text(const std::vector<double>& values, int digits) {
  const std::optional<Spread> found = spread(values);
  if (!found) return "-";
  std::string text = digits_of(found->median, digits);
  const std::string range = digits_of(found->min, digits) + (found->min < 0.0 ? " to " : "-") +
                            digits_of(found->max, digits);
  if (found->count > 1 && found->min != found->max) text += " (" + range + ")";
  return text;
}

std::string speed_table(const CompareResult& result, size_t width) {
  std::vector<Row> rows = {
      {"", "", "", "", "ms of a step", "", "", "", "staleness", "MB per", "CPU s", "peak MiB", ""},
      {"strategy", "workers", "samples/s", "scaling", "compute", "push", "wait", "pull", "mean/max",
       "step", "srv/wrk", "srv/wrk", "runs"}};
  if (!result.codecs.empty()) {
    std::ranges::replace(rows[0], "MB per", "MB per step");
    std::ranges::replace(rows[1], "step", "pushed/all");
  }
  add_places(result, rows[0], false);
  add_places(result, rows[1], true);
  for (const Group& group : groups_of(result)) {
    Row row = begin_row(result, group);
    if (group.well.empty()) {
      row.insert(row.end(), {"FAILED", "-", "-", "-", "-", "-", "-", "-", "-", "-"});
    } else {
      const auto scaled = [&](const CompareRun& run) { return scaling(result, run); };
      const auto rate = [](const CompareRun& run) { return positive(run.samples_per_second); };
      row.insert(row.end(),
                 {group.with_range(rate, 0), group.median(scaled, 2),
                  group.median(milliseconds(&StepSplit::compute), 2),
                  group.median(milliseconds(&StepSplit::push), 2),
                  group.median(milliseconds(&StepSplit::wait), 2),
                  group.median(milliseconds(&StepSplit::pull), 2), staleness(group),
                  megabytes(result, group),
                  group.median(cpu("server"), 2) + "/" + group.median(cpu("worker"), 2),
                  group.median(peak("server"), 0) + "/" + group.median(peak("worker"), 0)});
    }
    row.push_back(group.runs());
    rows.push_back(row);
  }
  return in_columns(rows, names_of(result), width);
}

std::string sync_table(const CompareResult& result, size_t width) {
  const MetricStyle metric = style_of(result.metric);
  Row header = {"strategy", "workers", "samples/s", metric.name};
  Row units = {"", "", "/ sync", "- sync"};
  if (result.target) {
    const std::string target = "to " + target_label(result);
    header.insert(header.end(), {"seconds " + target, "CPU s", target, "MB", target});
    units.insert(units.end(), {"/ sync", "", "/ sync", "", "/ sync"});
  }
  add_places(result, header, true);
  add_places(result, units, false);
  const auto ratio = [&result](const Figure& measure) -> Figure {
    return [&result, measure](const CompareRun& run) -> std::optional<double> {
      const CompareRun* const sync = sync_beside(result, run);
      if (sync == nullptr || sync == &run) return std::nullopt;
      const std::optional<double> mine = measure(run);
      const std::optional<double> its = measure(*sync);
      return mine && its && *its > 0.0 ? std::optional(*mine / *its) : std::nullopt;
    };
  };
  const auto difference = [&](const CompareRun& run) -> std::optional<double> {
    const CompareRun* const sync = sync_beside(result, run);
    if (sync == nullptr || sync == &run || !run.test_value || !sync->test_value) return {};
    return (*run.test_value - *sync->test_value) * metric.scale;
  };
  const auto megabytes = [](const CompareRun& run) -> std::optional<double> {
    const std::optional<double> bytes = bytes_to_target(run);
    return bytes ? std::optional(*bytes / kMega) : std::nullopt;
  };
  const auto rate = [](const CompareRun& run) { return positive(run.samples_per_second); };
  const auto seconds = [](const CompareRun& run) { return run.seconds_to_target; };
  std::vector<Row> rows = {header, units};
  bool any = false;
  for (const Group& group : groups_of(result)) {
    Row row = begin_row(result, group);
    any = any || !group.values(ratio(rate)).empty();
    row.insert(row.end(),
               {group.with_range(ratio(rate), 2), group.with_range(difference, metric.digits)});
    if (result.target) {
      row.insert(row.end(),
                 {group.with_range(ratio(seconds), 2), group.median(cpu_seconds_to_target, 2),
                  group.median(ratio(cpu_seconds_to_target), 2), group.median(megabytes, 2),
                  group.median(ratio(megabytes), 2)});
    }
    rows.push_back(row);
  }
  return any ? in_columns(rows, names_of(result), width) : "";
}

std::string compare_text(const CompareResult& result, size_t width) {
  std::string text = "same start for all\n";
  for (const std::string& line : same_start_lines(result)) text += "  " + line + "\n";
  text += "\nspeed, median (min-max)\n" + speed_table(result, width) +
          "\nlearning, median (min-max)\n" + learning_table(result, width);
  const std::string beside = sync_table(result, width);
  if (!beside.empty()) {
    text += "\nbeside sync, median (min-max) of runs with the same seed\n" + beside;
  }
  if (!result.notes.empty()) text += "\nnotes\n";
  for (const std::string& note : result.notes) text += "  - " + note + "\n";
  return text;
}

std::string learning_table(const CompareResult& result, size_t width) {
  const bool has_target = result.target.has_value();
  const MetricStyle metric = style_of(result.metric);
  const bool has_tuning = !result.tuning.empty();
  const std::string target = has_target ? "to " + target_label(result) : std::string();
  Row header = {"strategy", "workers", metric.name + (metric.unit.empty() ? "" : " " + metric.unit),
                "test loss", "seconds"};
  add_places(result, header, true);
  if (has_target) {
    header.insert(header.end(), {"seconds " + target, "samples " + target, "reached"});
  }
  if (has_tuning) header.emplace_back("tuned");
  header.emplace_back("runs");
  std::vector<Row> rows = {header};
  for (const Group& group : groups_of(result)) {
    const auto value = [&metric](const CompareRun& run) -> std::optional<double> {
      return run.test_value ? std::optional(*run.test_value * metric.scale) : std::nullopt;
    };
    Row row = begin_row(result, group);
    row.insert(row.end(),
               {group.well.empty() ? "FAILED" : group.with_range(value, metric.digits),
                group.median([](const CompareRun& run) { return run.test_loss; }, 4),
                group.median([](const CompareRun& run) { return positive(run.seconds); }, 2)});
    if (has_target) {
      const auto reached = std::ranges::count_if(
          group.well, [](const CompareRun* run) { return run->seconds_to_target.has_value(); });
      row.insert(row.end(), {group.target_text(to_target(&CompareRun::seconds_to_target), 2),
                             group.target_text(to_target(&CompareRun::samples_to_target), 0),
                             std::to_string(reached) + " of " + std::to_string(group.all.size())});
    }
    if (has_tuning) row.push_back(tuned(group));
    row.push_back(group.runs());
    rows.push_back(row);
  }
  return in_columns(rows, names_of(result), width);
}

}  // namespace pushpull
