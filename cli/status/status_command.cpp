// `pushpull status`.

#include <iostream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/status/ask_status.h"
#include "cli/status/status_table.h"
#include "common/base/error.h"
#include "common/job/command_line.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/net/address.h"
#include "common/net/key_file.h"

namespace pushpull {

namespace {

constexpr double kStatusSeconds = 5.0;

const std::vector<KeyHelp>& status_options() {
  static const std::vector<KeyHelp> options = with_key_flags({
      {"join", "", "address of the first server: tcp://HOST:PORT"},
      {"join-timeout", "5", "seconds to wait for its answer"},
      {"json", "", "print one JSON object", "", false},
  });
  return options;
}

}  // namespace

const ProgramHelp& status_help() {
  static const ProgramHelp help = {.name = "pushpull status",
                                   .summary = "members and progress of a running job",
                                   .usage = {"pushpull status HOST:PORT|OUT [--json]"},
                                   .options = status_options()};
  return help;
}

int status_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, status_options(), JobFlags::kRefuse);
  if (print_help(line, status_help(), PUSHPULL_VERSION)) return 0;
  const std::string address = asked_address(line, "status");
  zmq::context_t context(1);
  const StatusAnswer answer =
      ask_status(context, address, keys_of(line), seconds_of(line, "join-timeout", kStatusSeconds));
  if (line.local.contains("json")) {
    std::cout << answer.document.dump(2) << "\n";
    return 0;
  }
  try {
    std::cout << status_table(answer.document);
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::kProtocol,
                "[status] the answer of " + address + " lacks something: " + e.what());
  }
  return 0;
}

}  // namespace pushpull
