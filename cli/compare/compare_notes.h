// Remarks printed beside the figures of a comparison: too few cores, runs that did not start alike,
// targets that were not reached, failures. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/report/compare_result.h"

namespace pushpull {

// Returns remarks about the machine and the job, known before the first run.
//   micro_batches: per step.
//   threads: per worker.
std::vector<std::string> notes_before(const CompareResult& result, int64_t servers, int64_t threads,
                                      int64_t micro_batches);

// Returns remarks about the results.
std::vector<std::string> notes_after(const CompareResult& result);

// Returns one line per seed with the hashes that all its runs share. notes_after reports runs that
// differ.
std::vector<std::string> same_start_lines(const CompareResult& result);

}  // namespace pushpull
