// `pushpull run`: a whole job on this machine. Turns flags into what the launcher starts.
#pragma once

#include <string>
#include <vector>

#include "cli/run/launcher.h"
#include "common/job/command_line.h"

namespace pushpull {

const std::vector<KeyHelp>& run_options();

// What to start for these flags, after a check of the job: no process starts for a job that cannot
// run. terminal: the progress may overwrite its own line. program_dir: where the programs lie.
// Throws Error(kUsage) naming the flag or the job's key.
LauncherOptions plan_run(const CommandLine& line, const std::string& program_dir, bool terminal);

// argv[0] is "run". Returns the exit code; throws Error.
int run_command(int argc, const char* const* argv);

}  // namespace pushpull
