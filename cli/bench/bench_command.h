// `pushpull bench`: what an exchange of push, update and pull costs on this machine or cluster,
// with real processes, beside the floor that the same machine allows in the same minute.
#pragma once

namespace pushpull {

// argv[0] is "bench". Returns the exit code: 0, or 128 + signal after Ctrl-C. Throws Error.
int bench_command(int argc, const char* const* argv);

}  // namespace pushpull
