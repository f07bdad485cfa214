// `pushpull report`: writes one run's report.html from the files in its folder. Main thread.
#pragma once

namespace pushpull {

struct ProgramHelp;

const ProgramHelp& report_help();

// argv[0] is "report". Returns the exit code; throws Error.
int report_command(int argc, const char* const* argv);

}  // namespace pushpull
