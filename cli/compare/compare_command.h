// `pushpull compare`: the same job under several strategies and numbers of workers, repeated and
// interleaved, each run with real processes; then tables, compare.json and compare.csv.
#pragma once

namespace pushpull {

// argv[0] is "compare". Returns the exit code: 0 where at least one run went well, that of the
// first failure where none did, 128 + signal after Ctrl-C. Throws Error.
int compare_command(int argc, const char* const* argv);

}  // namespace pushpull
