// The output of a comparison: notes and tables for a terminal, and files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/report/compare_result.h"

namespace pushpull {

// Remarks printed beside the figures of a comparison: too few cores, runs that did not start alike,
// targets that were not reached, failures. Pure functions; any thread.

// Returns remarks about the machine and the job, known before the first run.
//   micro_batches: per step.
//   threads: per worker.
std::vector<std::string> notes_before(const CompareResult& result, int64_t servers, int64_t threads,
                                      int64_t micro_batches);

// Returns "other programs used 41 % of the cores", or "" if they used less than a tenth, or that is not
// known.
std::string load_text(const CompareResult& result, const CompareRun& run);

// Returns remarks about the results.
std::vector<std::string> notes_after(const CompareResult& result);

// Returns one line per seed with the hashes that all its runs share. notes_after reports runs that
// differ.
std::vector<std::string> same_start_lines(const CompareResult& result);

// A comparison as tables for a terminal: one of speed, one of learning, each with a row per
// strategy and number of workers. Cells are medians with (min-max). Any thread.

constexpr size_t kAnyWidth = SIZE_MAX;

// Aligns cells in columns: the first left, the others right, separated by two blanks. Columns that do
// not fit into `width` follow in further tables, each of which begins with the first `names` columns.
std::string in_columns(const std::vector<std::vector<std::string>>& rows, size_t names = 0,
                       size_t width = kAnyWidth);

std::string speed_table(const CompareResult& result, size_t width = kAnyWidth);
std::string learning_table(const CompareResult& result, size_t width = kAnyWidth);

// Returns each strategy beside sync, seed by seed: ratios of samples/s and of seconds, CPU seconds and
// bytes to the target, and the difference of the metric. Empty if no run of sync is there to compare
// with.
std::string sync_table(const CompareResult& result, size_t width = kAnyWidth);

// Returns all that is printed at the end of a comparison: the same start, the tables, the notes.
std::string compare_text(const CompareResult& result, size_t width = kAnyWidth);

// Returns "1.23 (1.10-1.40)", or "1.23" for a single value, or "-" for none. An infinite value
// prints as "never".
std::string spread_text(const std::vector<double>& values, int digits);

// Writes a comparison to files: compare.json, compare.csv and report.html; docs/compare.md defines
// every field. Any thread.

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
