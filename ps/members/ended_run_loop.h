// The program of a coordinator that finds the run of its predecessor ended, around `EndedRun`.
#pragma once

#include <string>

#include "common/base/process.h"
#include "common/net/endpoint.h"
#include "ps/members/ended_run.h"

namespace pushpull {

// Tells the members that are left how the run ended, and ends in the same way. Returns the exit code
// once the members have left, after 5 s, or at a signal.
//   folder: of the run, for messages.
int end_again(const RunEnd& end, const std::string& folder, Router& control, SignalFd& signals);

}  // namespace pushpull
