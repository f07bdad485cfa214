// `pushpull doctor`: what keeps this host from taking part in a job. Main thread.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"

namespace pushpull {

// A line each, aligned, and one that counts them.
std::string doctor_text(const std::vector<Finding>& findings);
// 0 without an error, otherwise the code of the first one.
int doctor_exit_code(const std::vector<Finding>& findings);

// argv[0] is "doctor". Returns the exit code; throws Error.
int doctor_command(int argc, const char* const* argv);

}  // namespace pushpull
