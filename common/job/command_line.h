// The command line of every program: job keys as flags, the program's own flags, plain words.
// Boost.Program_options without guessing: an abbreviation is an unknown flag. Any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/job/job.h"

namespace pushpull {

// Whether a program takes the job's keys as flags (those that start a job do).
enum class JobFlags { kAccept, kRefuse };

struct CommandLine {
  std::map<std::string, std::string> keys;   // job keys that were given, for parse_job()
  std::map<std::string, std::string> local;  // own flags that were given; a switch holds "true"
  std::vector<std::string> positional;       // words that are no flag, in order; all after "--"
  bool help = false;                         // --help or -h
  bool version = false;                      // --version
};

// argv[0] is the program's name. `--flag value` and `--flag=value`; values are not interpreted.
//   local_options: the program's own flags (key without dashes); --help and --version come along.
// Throws Error(kUsage) for an unknown flag (and says which one is near), a flag that stands there
// twice, a value that is missing or too much.
CommandLine parse_command_line(int argc, const char* const* argv,
                               const std::vector<KeyHelp>& local_options,
                               JobFlags job_flags = JobFlags::kAccept);

// The seconds of an own flag, `other` where it was not given. Throws Error(kUsage) naming the flag
// unless it is a number > 0 and at most 1e6.
double seconds_of(const CommandLine& line, const std::string& flag, double other);

// The whole text of --help, up to 100 columns.
//   summary: "pushpull-server: holds the weights of a job". usage: one command line each.
std::string help_text(const std::string& summary, const std::vector<std::string>& usage,
                      const std::vector<KeyHelp>& local_options,
                      JobFlags job_flags = JobFlags::kAccept);

}  // namespace pushpull
