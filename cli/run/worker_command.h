// Command lines of users: as text that can be typed again, and --worker COMMAND.
#pragma once

#include <string>
#include <vector>

#include "common/job/command_line.h"
#include "common/job/job.h"

namespace pushpull {

// A command line that can be typed again, for results that record how they were made. Any thread.

// Returns `words` after the program's name, quoted for a POSIX shell where necessary.
std::string shell_command(const std::string& program, const std::vector<std::string>& words);

// --worker COMMAND: a program of the user's own in the place of pushpull-worker, for jobs with
// model = external. Any thread.

// Returns the words of `text`, split and unquoted as a POSIX shell does it (POSIX.1-2017, XCU 2.2).
// Nothing is expanded, and operators such as | are ordinary characters. Throws Error(kUsage) if a
// quote does not end, if the last backslash quotes nothing, or if there is no word.
std::vector<std::string> split_words(const std::string& text);

// Returns the file that execvp(3) would execute for `name`. Throws Error(kUsage) with the file and
// the reason if there is none.
std::string find_program(const std::string& name);

// Returns the words of --worker, or none if the workers are pushpull's own.
//   command: "run" or "compare", for messages.
// Throws Error(kUsage) if the job's model does not fit, if a flag is given that only pushpull's own
// workers have, or if the command cannot be executed.
std::vector<std::string> worker_command(const CommandLine& line, const Job& job,
                                        const std::string& command);

}  // namespace pushpull
