// The flags --key and --insecure, the same in every program that connects or listens. Any thread.
#pragma once

#include <string>
#include <vector>

#include "common/job/command_line.h"
#include "common/keys/keys.h"

namespace pushpull {

struct KeyHelp;

// Adds --key and --insecure to a program's own flags.
std::vector<KeyHelp> with_key_flags(std::vector<KeyHelp> flags);

// Returns the key that a command line asks for (see `find_keys`), or none if it has --insecure.
// Throws Error(kUsage) naming the file and the fix.
Keys keys_of(const CommandLine& line);

// Sets the environment of the processes that this one will start, so that they find the key that
// `line` asks for. --insecure is not passed on: the caller must give it to them. If the user's key
// file cannot be created, makes a key for this run, passes it on, and returns a line that says so;
// otherwise returns "". Call before any thread starts. Throws as `keys_of` does.
std::string set_keys_of_children(const CommandLine& line);

// The warning of a program that listens without a key.
inline constexpr const char* kInsecureLine =
    "[key] --insecure: no key is required, any process that reaches these ports can take part";

}  // namespace pushpull
