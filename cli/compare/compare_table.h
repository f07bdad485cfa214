// A comparison as a person reads it on a terminal: one table of speed, one of learning, a row per
// strategy and number of workers; medians with (min-max). At most 140 columns. Any thread.
#pragma once

#include <string>
#include <vector>

#include "cli/result/compare_result.h"

namespace pushpull {

// Cells in columns: the first one to the left, the others to the right, two blanks between.
std::string in_columns(const std::vector<std::vector<std::string>>& rows);

std::string speed_table(const CompareResult& result);
std::string learning_table(const CompareResult& result);

// "1.23 (1.10-1.40)", "1.23" where there is one value, "-" where there is none. An infinite value
// is written as "never".
std::string spread_text(const std::vector<double>& values, int digits);

}  // namespace pushpull
