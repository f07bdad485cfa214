// `pushpull report`.

#include <filesystem>
#include <iostream>

#include "cli/commands.h"
#include "cli/report/run_report.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/io/file.h"
#include "common/job/command_line.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"

namespace pushpull {

const ProgramHelp& report_help() {
  static const ProgramHelp help = {.name = "pushpull report",
                                   .summary = "writes OUT/report.html, one page about a run",
                                   .usage = {"pushpull report OUT"},
                                   .words = "DIR"};
  return help;
}

int report_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, {}, JobFlags::kRefuse);
  if (print_help(line, report_help(), PUSHPULL_VERSION)) return 0;
  if (line.positional.size() != 1 || line.positional.front().empty()) {
    throw Error(ErrorCode::kUsage,
                "[report] the folder of one run must be named: pushpull report OUT");
  }
  const std::string& folder = line.positional.front();
  if (!std::filesystem::exists(folder + "/job.ini")) {
    throw Error(ErrorCode::kUsage,
                "[report] " + printable(folder, kMaxPathBytes) +
                    "/job.ini does not exist: name the --out of a run that has begun to train");
  }
  const std::string path = folder + "/report.html";
  write_file(path, run_report(folder));
  std::cout << "wrote " << printable(path, kMaxPathBytes) << std::endl;
  return 0;
}

}  // namespace pushpull
