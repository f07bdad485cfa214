// `pushpull keygen`: makes the key file of a job, or of its observers. Main thread.
#pragma once

namespace pushpull {

struct ProgramHelp;

const ProgramHelp& keygen_help();

// argv[0] is "keygen". Returns the exit code; throws Error.
int keygen_command(int argc, const char* const* argv);

}  // namespace pushpull
