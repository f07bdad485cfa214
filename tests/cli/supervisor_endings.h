// Ends of processes, for tests of the supervisor.
#pragma once

#include <csignal>

#include "cli/run/ending.h"

namespace pushpull {

inline constexpr Ending kDone{.code = 0, .signal = 0};
inline constexpr Ending kShot{.code = 0, .signal = SIGKILL};
inline Ending code(int value) { return {.code = value, .signal = 0}; }

}  // namespace pushpull
