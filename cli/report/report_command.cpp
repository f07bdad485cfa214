#include "cli/report/report_command.h"

#include <filesystem>
#include <iostream>

#include "cli/report/run_report.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/io/write_file.h"
#include "common/job/command_line.h"
#include "common/job/key_help.h"

namespace pushpull {

int report_command(int argc, const char* const* argv) {
  const std::vector<KeyHelp> options;
  const CommandLine line = parse_command_line(argc, argv, options, JobFlags::kRefuse);
  if (line.help) {
    std::cout << help_text("pushpull report: writes OUT/report.html, one page about a run",
                           {"pushpull report OUT"}, options, JobFlags::kRefuse);
    return 0;
  }
  if (line.version) {
    std::cout << "pushpull " PUSHPULL_VERSION "\n";
    return 0;
  }
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
  write_file(path, run_report_html(read_run_data(folder)));
  std::cout << "wrote " << printable(path, kMaxPathBytes) << std::endl;
  return 0;
}

}  // namespace pushpull
