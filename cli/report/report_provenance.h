// The origin of the report's numbers, so that others can reproduce or question them: command,
// versions, machine, links, hashes, and every run. Any thread.
#pragma once

#include <string>

#include "cli/report/report_data.h"
#include "cli/result/compare_result.h"

namespace pushpull {

// Returns important facts for the top of the page: differing hashes, failures, notes.
std::string warnings(const CompareResult& result, const ReportData& data);
std::string how_to_read(const CompareResult& result, const ReportData& data);
std::string provenance(const CompareResult& result, const ReportData& data);

}  // namespace pushpull
