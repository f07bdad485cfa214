// `pushpull compare`: runs the same job under several strategies and numbers of workers, repeated
// and interleaved, with real processes; then prints tables and writes compare.json and compare.csv.
// Main thread.
#pragma once

namespace pushpull {

// argv[0] is "compare". Returns the exit code: 0 if at least one run succeeded, else that of the
// first failure; 128 + signal after Ctrl-C. Throws Error.
int compare_command(int argc, const char* const* argv);

}  // namespace pushpull
