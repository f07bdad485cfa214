// The runs of a comparison, grouped by link, number of workers and strategy, and summarised over
// their seeds, for the report's tables and charts. Holds pointers into the result, which must
// outlive it. Any thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/svg_chart.h"
#include "cli/result/compare_result.h"
#include "cli/result/metric_style.h"

namespace pushpull {

// The cost of reaching the target. A seed that never reached it, or failed, counts as later than
// all others.
struct Reached {
  int64_t reached = 0;
  int64_t asked = 0;             // number of seeds
  std::optional<double> median;  // empty if at most half of the seeds reached it
  std::optional<double> min;     // of the seeds that reached it
  std::optional<double> max;
};

// The seeds of one strategy (and codec, if several are compared: row_name) with one number of
// workers over one link.
struct Cell {
  std::string strategy;
  size_t colour = 0;  // index among the strategies
  int64_t workers = 1;
  int64_t servers = 1;
  std::vector<const CompareRun*> good;
  std::vector<const CompareRun*> failed;
  std::string tuned;

  std::optional<Spread> rate;     // samples/s
  std::optional<Spread> value;    // of the metric, at the end
  std::optional<double> scaling;  // median over seeds, each relative to its own run with one worker
  Reached seconds;
  Reached samples;
  std::map<int64_t, int64_t> staleness;  // summed over all seeds
  std::optional<double> staleness_mean;  // median over the seeds
  int64_t staleness_max = 0;
  std::optional<Spread> pushed_mb;  // per step, all workers
  std::optional<Spread> pulled_mb;
  int64_t dropped = 0;
  std::map<std::string, Spread> cpu;   // seconds by role
  std::map<std::string, Spread> peak;  // MiB by role
  StepSplit split;                     // medians
};

struct LinkCells {
  std::string link;
  MetricStyle metric;            // of all runs
  std::vector<int64_t> workers;  // ascending
  std::vector<Cell> cells;       // by workers, then in the strategies' order
  std::vector<const Cell*> of(int64_t workers) const;
  const Cell* find(const std::string& strategy, int64_t workers) const;
};

struct ReportData {
  std::vector<std::string> strategies;
  std::vector<LinkCells> links;  // this machine's loopback first
  int64_t failures = 0;
  MetricStyle metric;
  std::optional<double> target;  // value of the metric
};
ReportData report_data(const CompareResult& result);

struct Winner {
  const Cell* best = nullptr;
  const Cell* second = nullptr;  // null = no other strategy
  bool clear = false;  // at least two seeds, all better than every seed of other strategies
};
// Compares strategies with equal numbers of workers. Returns empty if none has a value.
std::optional<Winner> fastest(const LinkCells& link, int64_t workers);
std::optional<Winner> first_at_target(const LinkCells& link, int64_t workers);
std::optional<Winner> best_value(const LinkCells& link, int64_t workers);

// Returns one value of a curve's point, or empty if the point lacks it.
using CurveValue = std::function<std::optional<double>(const CurvePoint&)>;

// Returns median, min and max over the seeds, at every time at which one of them was evaluated,
// from the first time at which all of them have a value. Between two evaluations a seed has the
// value of the first; after its last evaluation it keeps that value. A seed ends where its value is
// no longer finite. At most about `limit` points.
std::vector<LinePoint> band(const std::vector<const CompareRun*>& runs, const CurveValue& x,
                            const CurveValue& y, size_t limit);

}  // namespace pushpull
