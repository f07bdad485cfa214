// `pushpull top`: the members and progress of a running job, live in a terminal. Main thread.
#pragma once

namespace pushpull {

struct ProgramHelp;

const ProgramHelp& top_help();

// argv[0] is "top". Returns the exit code; throws Error.
int top_command(int argc, const char* const* argv);

}  // namespace pushpull
