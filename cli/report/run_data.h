// The content of one run's folder, for its report: job.ini, metrics.jsonl, members.json and
// summary.json. A run may go on, or may have died at any instruction: what is missing or damaged
// stays empty. Plain data and one reader; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/result/compare_result.h"

namespace pushpull {

// A line of metrics.jsonl.
struct MetricsPoint {
  double seconds = 0.0;  // since training began
  int64_t step = 0;
  int64_t samples = 0;
  std::optional<double> loss;
  std::optional<double> samples_per_second;
};

// A process in members.json.
struct MemberRow {
  std::string role;
  std::optional<int64_t> rank;
  std::string host;
  int64_t pid = 0;
  std::string device;
  int64_t step = 0;
  int64_t samples = 0;
  std::optional<double> cpu_seconds;
  std::optional<double> peak_mib;
  std::string reason;                // why it left; "" for a member
  std::optional<double> at_seconds;  // when, since the coordinator began
};

struct RunData {
  std::string folder;
  std::string job_ini;
  bool finished = false;  // there is a summary
  CompareRun run;         // measures are 0 without a summary
  std::string stopped_by;
  std::vector<MetricsPoint> points;  // by step
  std::vector<MemberRow> members;
  std::vector<MemberRow> left;
  std::vector<std::pair<std::string, int64_t>> faults;  // counts above 0, by name
};

// Throws Error(kData) if job.ini cannot be read, Error(kUsage) if it is no job.
RunData read_run_data(const std::string& folder);

}  // namespace pushpull
