// What a run has left in its folder, as an entry of the comparison: summary.json, metrics.jsonl,
// and its log where it failed. Distrusts all of them: a run may have died at any instruction. Any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/result/compare_result.h"

namespace pushpull {

// Fills what the run has measured; `run.failure` where a file is missing or makes no sense. What a
// file does not say stays empty or 0.
//   global_batch: samples of a step.
void read_run(const std::string& folder, int64_t global_batch, CompareRun& run);

// The evaluations in the text of metrics.jsonl, in its order, each at the moment at which its
// weights came to be. A line that is cut or damaged is left out.
std::vector<CurvePoint> read_curve(const std::string& metrics, int64_t global_batch);

// Sets time and samples at the first evaluation with at least this accuracy; leaves them empty
// where there is none.
void find_target(std::optional<double> target, CompareRun& run);

// The line of the log that says best why a run failed: the last error, or else the last line.
std::string failure_line(const std::string& log, int exit_code);

// A file's text, empty where it cannot be read; at most the last `limit_bytes`.
std::string read_tail(const std::string& path, int64_t limit_bytes);

}  // namespace pushpull
