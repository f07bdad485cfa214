// Completion of a program's command line in bash, fish and zsh.
//
// Completion of a program's command line in bash 4 or newer: commands, flags, files, values. Any
// thread.
#pragma once

#include <string>

#include "common/job/program_help.h"

namespace pushpull {

// Completion of a program's command line in zsh: commands, flags, files, values. Any thread.

// Returns the text of a file that zsh loads as the function _PROGRAM from a folder of its `fpath`.
std::string zsh_completion(const ProgramHelp& help);

// Completion of a program's command line in fish: commands, flags, files, values. Any thread.

// Returns a script of `complete` commands, which fish loads by the program's name.
std::string fish_completion(const ProgramHelp& help);

// Returns a script that needs nothing but bash: bash-completion loads it by the program's name, and
// a shell without that package sources it.
std::string bash_completion(const ProgramHelp& help);

}  // namespace pushpull
