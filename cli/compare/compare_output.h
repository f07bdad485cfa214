// A comparison as files: compare.json, compare.csv and report.html; docs/compare.md defines every
// field. Any thread.
#pragma once

#include <string>

#include "cli/result/compare_result.h"

namespace pushpull {

// One object: the fields of CompareResult, `runs` with one entry per run. null stands for what does
// not exist: a target that was not reached, a measure of a run that failed.
std::string compare_json(const CompareResult& result);

// A header and one row per run, RFC 4180 (but for \n as line end).
std::string compare_csv(const CompareResult& result);

// Both, into `folder`, each whole or not at all. Throws Error(kIo) naming the file.
void write_results(const CompareResult& result, const std::string& folder);

}  // namespace pushpull
