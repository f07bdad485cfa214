// `pushpull doctor`: finds out why this host cannot take part in a job. Main thread.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/host_facts.h"

namespace pushpull {

struct ProgramHelp;

// Returns one aligned line per finding and a last line with their counts.
std::string doctor_text(const std::vector<Finding>& findings);
// Returns 0 without an error, otherwise the code of the first error.
int doctor_exit_code(const std::vector<Finding>& findings);

// Returns a host's row of the table of all hosts, and a line for each warning.
std::string host_lines(const HostFacts& facts);

const ProgramHelp& doctor_help();

// argv[0] is "doctor". Returns the exit code; throws Error.
int doctor_command(int argc, const char* const* argv);

}  // namespace pushpull
