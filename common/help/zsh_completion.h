// Completion of a program's command line in zsh: commands, flags, files, values. Any thread.
#pragma once

#include <string>

#include "common/help/program_help.h"

namespace pushpull {

// Returns the text of a file that zsh loads as the function _PROGRAM from a folder of its `fpath`.
std::string zsh_completion(const ProgramHelp& help);

}  // namespace pushpull
