// `pushpull bench`: measures an exchange (push, update, pull) on this machine or cluster with real
// processes, next to the floor: the fastest that the same machine allows at the same time. Main
// thread.
#pragma once

namespace pushpull {

// argv[0] is "bench". Returns the exit code: 0, or 128 + signal after Ctrl-C. Throws Error.
int bench_command(int argc, const char* const* argv);

}  // namespace pushpull
