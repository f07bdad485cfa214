// What a reader of a comparison must be told beside its figures: too few cores, runs that did not
// start alike, targets that were not reached, failures. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/result/compare_result.h"

namespace pushpull {

// Of the machine and the job, known before the first run.
//   micro_batches: of a step. threads: of a worker.
std::vector<std::string> notes_before(const CompareResult& result, int64_t servers, int64_t threads,
                                      int64_t micro_batches);

// Of what the runs have shown.
std::vector<std::string> notes_after(const CompareResult& result);

// For each seed one line with the hashes that all its runs share; a run that differs makes a line
// of its own in notes_after.
std::vector<std::string> same_start_lines(const CompareResult& result);

}  // namespace pushpull
