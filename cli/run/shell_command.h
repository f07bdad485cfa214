// A command line that can be typed again, for results that record how they were made. Any thread.
#pragma once

#include <string>
#include <vector>

namespace pushpull {

// Returns `words` after the program's name, quoted for a POSIX shell where necessary.
std::string shell_command(const std::string& program, const std::vector<std::string>& words);

}  // namespace pushpull
