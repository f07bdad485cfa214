// Parses the command line of every program: job keys as flags, the program's own flags, positional
// words. Uses Boost.Program_options without guessing: an abbreviated flag is unknown. Any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace pushpull {

struct KeyHelp;

// Whether a program accepts the job's keys as flags. Programs that start a job do.
enum class JobFlags { kAccept, kRefuse };

struct CommandLine {
  std::map<std::string, std::string> keys;   // job keys given, for parse_job()
  std::map<std::string, std::string> local;  // own flags given; a switch has the value "true"
  std::vector<std::string> positional;  // words that are not flags, in order; everything after "--"
  bool help = false;                    // --help or -h, and --help-as
  std::string help_as;                  // format of the help; "": text
  bool version = false;                 // --version

  // Returns the value of an own flag, or `fallback` if it is not given.
  std::string own(const std::string& flag, const std::string& fallback) const;
};

// Accepts `--flag value` and `--flag=value`; values are not interpreted.
//   argv: argv[0] is the program's name.
//   local_options: the program's own flags (key without dashes); --help, --version and the hidden
//     --help-as FORMAT (common/job/program_help.h) are added.
// Throws Error(kUsage) for an unknown flag (with the closest known one), a flag given twice, or a
// missing or unexpected value.
CommandLine parse_command_line(int argc, const char* const* argv,
                               const std::vector<KeyHelp>& local_options,
                               JobFlags job_flags = JobFlags::kAccept);

// Returns the value of an own flag in seconds, or `other` if it was not given. Throws Error(kUsage)
// naming the flag unless the value is a number > 0 and at most 1e6.
double seconds_of(const CommandLine& line, const std::string& flag, double other);

}  // namespace pushpull
