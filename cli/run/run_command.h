// `pushpull run`: runs a whole job on this machine. Turns flags into launcher options. Main thread.
#pragma once

#include <string>
#include <vector>

#include "cli/run/launcher.h"
#include "common/job/command_line.h"

namespace pushpull {

struct ProgramHelp;
struct KeyHelp;

const std::vector<KeyHelp>& run_options();

// Returns the launcher options for these flags. Checks the job first: no process starts for a job
// that cannot run.
//   terminal: the progress line may overwrite itself.
//   program_dir: folder of the programs.
// Throws Error(kUsage) with the flag or the job key.
LauncherOptions plan_run(const CommandLine& line, const std::string& program_dir, bool terminal);

const ProgramHelp& run_help();

// argv[0] is "run". Returns the exit code; throws Error.
int run_command(int argc, const char* const* argv);

}  // namespace pushpull
