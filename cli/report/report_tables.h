// The report's tables of what was measured. One link at a time. Any thread.
#pragma once

#include <optional>
#include <string>

#include "cli/report/report_data.h"

namespace pushpull {

// Who is first with the largest number of workers, in a sentence each.
//   others: there are other links, so this one is named
std::string headline(const LinkCells& link, std::optional<double> target, bool others);
// Speed, scaling, accuracy, time and samples to the target.
std::string results_table(const LinkCells& link, std::optional<double> target);
// What it cost: staleness, bytes, CPU seconds, memory.
std::string costs_table(const LinkCells& link);
// Opens a table that scrolls inside its own frame.
std::string open_table(const std::string& about);
std::string close_table();

}  // namespace pushpull
