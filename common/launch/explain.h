// A placement as text for users. Any thread.
#pragma once

#include <string>

#include "common/launch/placement.h"

namespace pushpull {

// Returns the lines of --explain: each value with its source.
std::string explain(const Placement& placement);

// Returns the most important of it in one line, for the log.
std::string summary_line(const Placement& placement);

}  // namespace pushpull
