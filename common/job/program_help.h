// One program or command as its users see it. --help, the man page and the completion of shells are
// made from this description and from nothing else. Plain data; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/job/command_line.h"
#include "common/job/job_keys.h"

namespace pushpull {

struct ProgramHelp {
  std::string name;                   // "pushpull run"
  std::string summary;                // "trains on this machine"
  std::vector<std::string> usage;     // command lines; one that begins with a blank continues
  std::vector<KeyHelp> options = {};  // its own flags
  JobFlags job_flags = JobFlags::kRefuse;
  std::string words = {};                  // its positional words, as KeyHelp::value
  std::string more = {};                   // indented text below the options, or ""
  std::vector<ProgramHelp> commands = {};  // of `pushpull`
};

// Prints what --help, --version or the hidden --help-as asks for on standard output. Returns false
// if the command line has none of them. --help-as FORMAT serves scripts/manual.sh: man, job (the
// page of the job file), bash, zsh, fish, or commands (their names). Throws Error(kUsage) for
// another format.
bool print_help(const CommandLine& line, const ProgramHelp& help, const std::string& version);

}  // namespace pushpull
