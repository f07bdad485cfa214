// The text of --help: a program's own flags, then the job's keys by group. Any thread.
#pragma once

#include <string>
#include <vector>

#include "common/job/program_help.h"

namespace pushpull {

// Returns the whole text, wrapped at 100 columns.
std::string help_text(const ProgramHelp& help);

// Returns the name of a command without its program: "run".
std::string last_word(const ProgramHelp& command);

// Returns a program's own flags with --help and --version, which every program has.
std::vector<KeyHelp> all_options(const ProgramHelp& help);

// Returns the name of an option's value for users: FILE, DIR, or VALUE.
std::string value_name(const KeyHelp& option);

// Returns the words that an option's value can have, or none if it is no list of words.
std::vector<std::string> value_words(const KeyHelp& option);

}  // namespace pushpull
