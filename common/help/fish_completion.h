// Completion of a program's command line in fish: commands, flags, files, values. Any thread.
#pragma once

#include <string>

#include "common/help/program_help.h"

namespace pushpull {

// Returns a script of `complete` commands, which fish loads by the program's name.
std::string fish_completion(const ProgramHelp& help);

}  // namespace pushpull
