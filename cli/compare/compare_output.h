// Writes a comparison to files: compare.json, compare.csv and report.html; docs/compare.md defines
// every field. Any thread.
#pragma once

#include <string>

#include "cli/report/compare_result.h"

namespace pushpull {

// Returns one object with the fields of CompareResult and one entry of `runs` per run. null means
// absent: a target that was not reached, or a measurement of a failed run.
std::string compare_json(const CompareResult& result);

// Returns report.html: one page that needs no network.
std::string compare_page(const CompareResult& result);

// Returns a header and one row per run, RFC 4180 (with \n as line end).
std::string compare_csv(const CompareResult& result);

// Writes all files into `folder`, each completely or not at all. Throws Error(kIo) with the file
// name.
void write_results(const CompareResult& result, const std::string& folder);

}  // namespace pushpull
