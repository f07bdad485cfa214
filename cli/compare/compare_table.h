// A comparison as tables for a terminal: one of speed, one of learning, each with a row per
// strategy and number of workers. Cells are medians with (min-max). At most 140 columns. Any
// thread.
#pragma once

#include <string>
#include <vector>

#include "cli/report/compare_result.h"

namespace pushpull {

// Aligns cells in columns: the first left, the others right, separated by two blanks.
std::string in_columns(const std::vector<std::vector<std::string>>& rows);

std::string speed_table(const CompareResult& result);
std::string learning_table(const CompareResult& result);

// Returns each strategy beside sync, seed by seed: ratios of samples/s and of seconds, CPU seconds and
// bytes to the target, and the difference of the metric. Empty if no run of sync is there to compare
// with.
std::string sync_table(const CompareResult& result);

// Returns all that is printed at the end of a comparison: the same start, the tables, the notes.
std::string compare_text(const CompareResult& result);

// Returns "1.23 (1.10-1.40)", or "1.23" for a single value, or "-" for none. An infinite value
// prints as "never".
std::string spread_text(const std::vector<double>& values, int digits);

}  // namespace pushpull
