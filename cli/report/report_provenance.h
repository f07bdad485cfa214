// Where the report's numbers come from, so that somebody else can get them again or doubt them:
// command, versions, machine, links, hashes, every run. Any thread.
#pragma once

#include <string>

#include "cli/report/report_data.h"
#include "cli/result/compare_result.h"

namespace pushpull {

// What a reader must know before the first number: hashes that differ, failures, notes.
std::string warnings(const CompareResult& result, const ReportData& data);
std::string how_to_read(const CompareResult& result, const ReportData& data);
std::string provenance(const CompareResult& result, const ReportData& data);

}  // namespace pushpull
