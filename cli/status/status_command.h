// `pushpull status`: who takes part in a running job, and how it goes. Main thread.
#pragma once

namespace pushpull {

// argv[0] is "status". Returns the exit code; throws Error.
int status_command(int argc, const char* const* argv);

}  // namespace pushpull
