#include "cli/doctor/doctor_command.h"

#include <algorithm>
#include <array>
#include <iostream>

#include "cli/doctor/job_checks.h"
#include "common/base/text.h"
#include "common/help/program_help.h"
#include "common/job/command_line.h"
#include "common/job/key_help.h"
#include "common/keys/key_flags.h"
#include "common/net/address.h"

namespace pushpull {

namespace {

constexpr double kDoctorSeconds = 5.0;

const std::vector<KeyHelp>& doctor_options() {
  static const std::vector<KeyHelp> options = with_key_flags({
      {"join", "", "address of the first server: tcp://HOST:PORT"},
      {"join-timeout", "5", "seconds to wait for its answer"},
  });
  return options;
}

}  // namespace

std::string doctor_text(const std::vector<Finding>& findings) {
  constexpr std::array<const char*, 3> kNames = {"ok       ", "warning  ", "ERROR    "};
  size_t width = 0;
  for (const Finding& one : findings) width = std::max(width, one.check.size());
  std::string out;
  for (const Finding& one : findings) {
    out += kNames.at(static_cast<size_t>(one.level)) + one.check +
           std::string(width - one.check.size() + 2, ' ') + printable(one.text, kMaxPathBytes) +
           "\n";
  }
  const auto count = [&](Finding::Level level) {
    return std::count_if(findings.begin(), findings.end(),
                         [level](const Finding& one) { return one.level == level; });
  };
  return out + plural(std::ssize(findings), "check") + ", " +
         plural(count(Finding::kError), "error") + ", " +
         plural(count(Finding::kWarning), "warning") + "\n";
}

int doctor_exit_code(const std::vector<Finding>& findings) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [](const Finding& one) { return one.level == Finding::kError; });
  return found == findings.end() ? 0 : static_cast<int>(found->code);
}

const ProgramHelp& doctor_help() {
  static const ProgramHelp help = {.name = "pushpull doctor",
                                   .summary = "why this host cannot take part in a running job",
                                   .usage = {"pushpull doctor --join tcp://HOST:PORT"},
                                   .options = doctor_options()};
  return help;
}

int doctor_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, doctor_options(), JobFlags::kRefuse);
  if (print_help(line, doctor_help(), PUSHPULL_VERSION)) return 0;
  if (!line.positional.empty() || !line.local.contains("join")) {
    throw Error(ErrorCode::kUsage,
                "[doctor] the address of the first server is needed: --join tcp://HOST:PORT");
  }
  const std::string& address = line.local.at("join");
  parse_address(address, "join");
  const std::vector<Finding> findings =
      check_job(address, keys_of(line), seconds_of(line, "join-timeout", kDoctorSeconds));
  std::cout << doctor_text(findings);
  return doctor_exit_code(findings);
}

}  // namespace pushpull
