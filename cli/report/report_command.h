// `pushpull report`: writes one run's report.html from the files in its folder. Main thread.
#pragma once

#include <string>

namespace pushpull {

struct ProgramHelp;

const ProgramHelp& report_help();

// argv[0] is "report". Returns the exit code; throws Error.
int report_command(int argc, const char* const* argv);

// Returns the page about the run in a folder. A run may go on, or may have died at any instruction:
// what is missing or damaged is left out. Throws Error(kData) if job.ini cannot be read,
// Error(kUsage) if it is no job.
std::string run_page(const std::string& folder);

}  // namespace pushpull
