// Completion of a program's command line in bash 4 or newer: commands, flags, files, values. Any
// thread.
#pragma once

#include <string>

#include "common/help/program_help.h"

namespace pushpull {

// Returns a script that needs nothing but bash: bash-completion loads it by the program's name, and
// a shell without that package sources it.
std::string bash_completion(const ProgramHelp& help);

}  // namespace pushpull
