// `pushpull status`: prints members and progress of a running job. Main thread.
#pragma once

namespace pushpull {

struct ProgramHelp;

const ProgramHelp& status_help();

// argv[0] is "status". Returns the exit code; throws Error.
int status_command(int argc, const char* const* argv);

}  // namespace pushpull
