// The flags --key and --insecure, the same in every program that connects or listens. Any thread.
#pragma once

#include <string>
#include <vector>

#include "common/job/command_line.h"
#include "common/keys/keys.h"

namespace pushpull {

// Adds them to a program's own flags.
std::vector<KeyHelp> with_key_flags(std::vector<KeyHelp> flags);

// The key that a command line asks for (see `find_keys`); none after --insecure.
// Throws Error(kUsage) naming the file and the way out.
Keys keys_of(const CommandLine& line);

// Sets the environment of the processes that this one will start, so that they find the key that
// `line` asks for; --insecure they must be told. Where no home can be written, a key is made for
// this run and handed down; the line that says so is returned, else "". Before any thread starts.
// Throws as `keys_of` does.
std::string set_keys_of_children(const CommandLine& line);

// What a program says that listens without a key.
inline constexpr const char* kInsecureLine =
    "[key] --insecure: no key is asked for, whoever reaches these ports can take part";

}  // namespace pushpull
