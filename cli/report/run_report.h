// The report of one run, from the files in its folder: job.ini, metrics.jsonl, members.json and
// summary.json. Any thread.
#pragma once

#include <string>

namespace pushpull {

// Returns the page. A run may go on, or may have died at any instruction: what is missing or damaged
// is left out. Throws Error(kData) if job.ini cannot be read, Error(kUsage) if it is no job.
std::string run_report(const std::string& folder);

}  // namespace pushpull
