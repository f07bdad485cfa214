// The report's tables of results. Each function covers one link. Any thread.
#pragma once

#include <optional>
#include <string>

#include "cli/report/report_data.h"

namespace pushpull {

// Returns the winners with the largest number of workers, one sentence each.
//   others: true if the report has other links, so that this one is named.
std::string headline(const LinkCells& link, std::optional<double> target, bool others);
// Returns speed, scaling, accuracy, time and samples to the target.
std::string results_table(const LinkCells& link, std::optional<double> target);
// Returns the costs: staleness, bytes, CPU seconds, memory.
std::string costs_table(const LinkCells& link);
// Opens a table that scrolls within its own frame.
std::string open_table(const std::string& about);
std::string close_table();

}  // namespace pushpull
