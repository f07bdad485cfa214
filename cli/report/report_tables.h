// The report's tables of results. One link at a time. Any thread.
#pragma once

#include <optional>
#include <string>

#include "cli/report/report_data.h"

namespace pushpull {

// The winners with the largest number of workers, one sentence each.
//   others: there are other links, so this one is named.
std::string headline(const LinkCells& link, std::optional<double> target, bool others);
// Speed, scaling, accuracy, time and samples to the target.
std::string results_table(const LinkCells& link, std::optional<double> target);
// The costs: staleness, bytes, CPU seconds, memory.
std::string costs_table(const LinkCells& link);
// Opens a table that scrolls within its own frame.
std::string open_table(const std::string& about);
std::string close_table();

}  // namespace pushpull
