#include "cli/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

namespace pushpull {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

template <typename Value>
std::optional<Spread> spread_of(const std::vector<const CompareRun*>& runs, const Value& value) {
  std::vector<double> values;
  for (const CompareRun* run : runs) {
    const std::optional<double> found = value(*run);
    if (found && std::isfinite(*found)) values.push_back(*found);
  }
  return spread(std::move(values));
}

template <typename Value>
Reached reached(const Cell& cell, const Value& value) {
  Reached out;
  std::vector<double> all(cell.failed.size(), kNever);
  std::vector<double> there;
  for (const CompareRun* run : cell.good) {
    const std::optional<double> found = value(*run);
    if (found && std::isfinite(*found)) there.push_back(*found);
    all.push_back(found && std::isfinite(*found) ? *found : kNever);
  }
  out.asked = static_cast<int64_t>(all.size());
  out.reached = static_cast<int64_t>(there.size());
  if (const auto found = spread(all); found && std::isfinite(found->median)) {
    out.median = found->median;
  }
  if (const auto found = spread(there)) {
    out.min = found->min;
    out.max = found->max;
  }
  return out;
}

std::optional<double> per_step(const CompareRun& run, int64_t bytes) {
  if (run.steps <= 0) return std::nullopt;
  return static_cast<double>(bytes) / 1e6 / static_cast<double>(run.steps);
}

void sum_staleness(Cell& cell) {
  std::vector<double> means;
  for (const CompareRun* run : cell.good) {
    cell.dropped += run->pushes_dropped;
    if (!run->staleness.empty()) means.push_back(summarize(run->staleness).mean);
    for (const auto& [staleness, count] : run->staleness) {
      if (count <= 0) continue;
      cell.staleness[staleness] += count;
      cell.staleness_max = std::max(cell.staleness_max, staleness);
    }
  }
  if (const auto found = spread(std::move(means))) cell.staleness_mean = found->median;
}

void sum_roles(Cell& cell) {
  std::map<std::string, std::vector<double>> cpu;
  std::map<std::string, std::vector<double>> peak;
  for (const CompareRun* run : cell.good) {
    for (const auto& [role, value] : run->cpu_seconds) cpu[role].push_back(value);
    for (const auto& [role, value] : run->peak_mib) peak[role].push_back(value);
  }
  for (auto& [role, values] : cpu) cell.cpu[role] = spread(std::move(values)).value();
  for (auto& [role, values] : peak) cell.peak[role] = spread(std::move(values)).value();
}

void sum_up(Cell& cell) {
  const auto median = [&](double StepSplit::*part) {
    const auto found = spread_of(
        cell.good, [&](const CompareRun& run) { return std::optional<double>(run.split.*part); });
    return found ? found->median : 0.0;
  };
  cell.rate =
      spread_of(cell.good, [](const CompareRun& r) { return std::optional(r.samples_per_second); });
  cell.value = spread_of(cell.good, [](const CompareRun& r) { return r.test_value; });
  cell.seconds = reached(cell, [](const CompareRun& r) { return r.seconds_to_target; });
  cell.samples = reached(cell, [](const CompareRun& r) {
    return r.samples_to_target ? std::optional(static_cast<double>(*r.samples_to_target))
                               : std::nullopt;
  });
  cell.pushed_mb =
      spread_of(cell.good, [](const CompareRun& r) { return per_step(r, r.bytes_pushed); });
  cell.pulled_mb =
      spread_of(cell.good, [](const CompareRun& r) { return per_step(r, r.bytes_pulled); });
  cell.split = {median(&StepSplit::compute), median(&StepSplit::push), median(&StepSplit::wait),
                median(&StepSplit::pull)};
  sum_staleness(cell);
  sum_roles(cell);
}

LinkCells link_cells(const CompareResult& result, const std::vector<std::string>& strategies,
                     const std::string& link) {
  std::map<std::tuple<int64_t, size_t>, Cell> cells;
  std::set<int64_t> workers;
  for (const CompareRun& run : result.runs) {
    if (run.link != link) continue;
    const auto colour =
        static_cast<size_t>(std::ranges::find(strategies, row_name(run)) - strategies.begin());
    Cell& cell = cells[{run.workers, colour}];
    cell.strategy = row_name(run);
    cell.colour = colour;
    cell.workers = run.workers;
    cell.servers = run.servers;
    if (!run.tuned.empty()) cell.tuned = run.tuned;
    (run.failure.empty() ? cell.good : cell.failed).push_back(&run);
    workers.insert(run.workers);
  }
  LinkCells out{.link = link,
                .metric = style_of(result.metric),
                .workers = {workers.begin(), workers.end()},
                .cells = {}};
  for (auto& [place, cell] : cells) {
    sum_up(cell);
    out.cells.push_back(std::move(cell));
  }
  for (Cell& cell : out.cells) {
    const auto scaled =
        spread_of(cell.good, [&](const CompareRun& run) { return scaling(result, run); });
    if (scaled) cell.scaling = scaled->median;
  }
  return out;
}

// `Key` returns a cell's value, smaller is better, or empty if the cell does not compete.
template <typename Key>
std::optional<Winner> winner(const LinkCells& link, int64_t workers, const Key& key) {
  struct Entry {
    const Cell* cell;
    Spread value;
  };
  std::vector<Entry> entries;
  for (const Cell* cell : link.of(workers)) {
    if (const std::optional<Spread> value = key(*cell)) entries.push_back({cell, *value});
  }
  if (entries.empty()) return std::nullopt;
  std::ranges::stable_sort(entries, {}, [](const Entry& entry) { return entry.value.median; });
  Winner out{.best = entries[0].cell, .second = nullptr, .clear = false};
  if (entries.size() == 1) return out;
  out.second = entries[1].cell;
  out.clear = entries[0].value.count > 1;
  for (size_t i = 1; i < entries.size(); ++i) {
    out.clear = out.clear && entries[0].value.max < entries[i].value.min;
  }
  return out;
}

std::optional<Spread> negative(const std::optional<Spread>& value) {
  if (!value) return value;
  return Spread{-value->median, -value->max, -value->min, value->count};
}

struct Series {
  std::vector<std::pair<double, double>> points;
  bool broken = false;   // a non-finite point follows the last one
  double broken_at = 0;  // x of that point
};

Series series_of(const CompareRun& run, const CurveValue& x, const CurveValue& y) {
  Series out;
  for (const CurvePoint& point : run.curve) {
    const std::optional<double> at = x(point);
    const std::optional<double> value = y(point);
    if (!at || !value || !std::isfinite(*at)) continue;
    if (!std::isfinite(*value)) {
      out.broken = true;
      out.broken_at = *at;
      break;
    }
    out.points.emplace_back(*at, *value);
  }
  std::ranges::stable_sort(out.points, {}, &std::pair<double, double>::first);
  return out;
}

std::optional<double> value_at(const Series& series, double x) {
  if (series.broken && x >= series.broken_at) return std::nullopt;
  const auto behind =
      std::ranges::upper_bound(series.points, x, {}, &std::pair<double, double>::first);
  if (behind == series.points.begin()) return std::nullopt;
  return std::prev(behind)->second;
}

}  // namespace

std::vector<const Cell*> LinkCells::of(int64_t count) const {
  std::vector<const Cell*> out;
  for (const Cell& cell : cells) {
    if (cell.workers == count) out.push_back(&cell);
  }
  return out;
}

const Cell* LinkCells::find(const std::string& strategy, int64_t count) const {
  for (const Cell& cell : cells) {
    if (cell.workers == count && cell.strategy == strategy) return &cell;
  }
  return nullptr;
}

ReportData report_data(const CompareResult& result) {
  ReportData out{.strategies = row_names(result),
                 .links = {},
                 .failures = 0,
                 .metric = style_of(result.metric),
                 .target = std::nullopt};
  if (result.target && std::isfinite(*result.target)) out.target = result.target;
  std::vector<std::string> links;
  for (const CompareRun& run : result.runs) {
    if (!run.failure.empty()) ++out.failures;
    if (std::ranges::find(links, run.link) == links.end()) links.push_back(run.link);
  }
  std::stable_partition(links.begin(), links.end(),
                        [](const std::string& link) { return link.empty(); });
  for (const std::string& link : links) {
    out.links.push_back(link_cells(result, out.strategies, link));
  }
  return out;
}

std::optional<Winner> fastest(const LinkCells& link, int64_t workers) {
  return winner(link, workers, [](const Cell& cell) { return negative(cell.rate); });
}

std::optional<Winner> best_value(const LinkCells& link, int64_t workers) {
  return winner(link, workers, [&link](const Cell& cell) {
    return link.metric.higher_is_better ? negative(cell.value) : cell.value;
  });
}

std::optional<Winner> first_at_target(const LinkCells& link, int64_t workers) {
  return winner(link, workers, [](const Cell& cell) -> std::optional<Spread> {
    const Reached& there = cell.seconds;
    if (!there.median || !there.min || !there.max) return std::nullopt;
    const bool all = there.reached == there.asked;
    Spread out{*there.median, *there.min, *there.max, there.asked};
    if (!all) out.max = kNever;
    return out;
  });
}

std::vector<LinePoint> band(const std::vector<const CompareRun*>& runs, const CurveValue& x,
                            const CurveValue& y, size_t limit) {
  std::vector<Series> all;
  std::set<double> times;
  double begin = -kNever;  // every seed has a value from this x on
  for (const CompareRun* run : runs) {
    Series series = series_of(*run, x, y);
    if (series.points.empty()) continue;
    begin = std::max(begin, series.points.front().first);
    for (const auto& point : series.points) times.insert(point.first);
    all.push_back(std::move(series));
  }
  times.erase(times.begin(), times.lower_bound(begin));
  const std::vector<double> where(times.begin(), times.end());
  const size_t count = std::min(where.size(), std::max<size_t>(limit, 2));
  std::vector<LinePoint> out;
  for (size_t i = 0; i < count; ++i) {
    const size_t place = count == 1 ? 0 : i * (where.size() - 1) / (count - 1);
    std::vector<double> values;
    for (const Series& series : all) {
      if (const auto value = value_at(series, where[place])) values.push_back(*value);
    }
    if (const auto found = spread(std::move(values))) {
      out.push_back({where[place], found->median, found->min, found->max});
    }
  }
  return out;
}

}  // namespace pushpull
