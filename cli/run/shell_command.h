// A command line as it can be typed again: for results that say how they were made. Any thread.
#pragma once

#include <string>
#include <vector>

namespace pushpull {

// `words` behind the program's name, quoted for a POSIX shell where they need it.
std::string shell_command(const std::string& program, const std::vector<std::string>& words);

}  // namespace pushpull
