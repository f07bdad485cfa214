// Reads the files of a run's folder (summary.json, metrics.jsonl, and the log if the run failed)
// into an entry of the comparison. Validates everything: a run may have died at any instruction.
// Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/compare_result.h"

namespace pushpull {

// Fills in the run's measurements, or `run.failure` if summary.json is missing or invalid. Fields
// that a file lacks stay empty or 0; without metrics.jsonl the curve is empty.
//   global_batch: samples per step.
//   target: measure of the curve's target_value.
void read_run(const std::string& folder, int64_t global_batch, CompareRun& run,
              const MeasureName& target = {});

// Returns the evaluations in the text of metrics.jsonl, in its order, each at the time when its
// weights were complete. Skips truncated or damaged lines.
std::vector<CurvePoint> read_curve(const std::string& metrics, int64_t global_batch,
                                   const MeasureName& target = {});

// Sets time and samples of the first evaluation at the target. Leaves them empty if there is none. The
// run was read with the target's measure.
void find_target(const std::optional<Target>& target, CompareRun& run);

// Returns the log line that best explains a failure: the last error, or else the last line.
std::string failure_line(const std::string& log, int exit_code);

// Returns at most the last `limit_bytes` of a file's text; empty if the file cannot be read.
std::string read_tail(const std::string& path, int64_t limit_bytes);

}  // namespace pushpull
