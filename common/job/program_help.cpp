#include "common/job/program_help.h"

#include <iostream>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/completion.h"
#include "common/job/help_text.h"
#include "common/job/man_page.h"

namespace pushpull {
namespace {

std::string help_in_format(const std::string& format, const ProgramHelp& help,
                           const std::string& version) {
  if (format.empty()) return help_text(help);
  if (format == "man") return man_page(help, version);
  if (format == "job") return job_man_page(version);
  if (format == "bash") return bash_completion(help);
  if (format == "zsh") return zsh_completion(help);
  if (format == "fish") return fish_completion(help);
  if (format == "commands") {
    std::string out;
    for (const ProgramHelp& command : help.commands) out += last_word(command) + "\n";
    return out;
  }
  throw Error(ErrorCode::kUsage, "[usage] --help-as " + printable(format) +
                                     ": must be man, job, bash, zsh, fish or commands");
}

}  // namespace

bool print_help(const CommandLine& line, const ProgramHelp& help, const std::string& version) {
  if (line.help) {
    std::cout << help_in_format(line.help_as, help, version);
  } else if (line.version) {
    std::cout << help.name.substr(0, help.name.find(' ')) << " " << version << "\n";
  }
  return line.help || line.version;
}

}  // namespace pushpull
