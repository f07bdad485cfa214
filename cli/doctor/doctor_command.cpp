// `pushpull doctor`.

#include <algorithm>
#include <array>
#include <iostream>

#include "cli/commands.h"
#include "cli/doctor/checks.h"
#include "common/base/text.h"
#include "common/job/command_line.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/net/address.h"
#include "common/net/key_file.h"

namespace pushpull {

namespace {

constexpr double kDoctorSeconds = 5.0;

const std::vector<KeyHelp>& doctor_options() {
  static const std::vector<KeyHelp> options = with_key_flags({
      {"join", "",
       "address of the first server: tcp://HOST:PORT; without it only this host is examined, "
       "before "
       "any job"},
      {"join-timeout", "5", "seconds to wait for its answer"},
  });
  return options;
}

// Without --join. Several tasks of a launcher print one table together, without a connection between them: this command
// is for hosts that may not reach each other. Each host's first task prints its row.
int examine_host() {
  const TaskFinding task = check_launcher_here();
  if (task.tasks <= 1) {
    std::vector<Finding> findings = {task.finding};
    for (Finding& one : check_facts(read_host_facts())) findings.push_back(std::move(one));
    std::cout << doctor_text(findings);
    return doctor_exit_code(findings);
  }
  if (task.local_rank > 0) return 0;
  std::string lines = task.rank == 0 ? host_titles() : "";
  if (task.rank == 0 && task.finding.level != Finding::kOk) {
    lines = "warning  launcher: " + printable(task.finding.text, kMaxPathBytes) + "\n" + lines;
  }
  std::cout << lines + host_lines(read_host_facts()) << std::flush;
  return 0;
}

}  // namespace

std::string host_lines(const HostFacts& facts) {
  std::string out = host_row(facts);
  for (const Finding& one : check_facts(facts)) {
    if (one.level == Finding::kOk) continue;
    out +=
        facts.host + "  warning  " + one.check + ": " + printable(one.text, kMaxPathBytes) + "\n";
  }
  return out;
}

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
  static const ProgramHelp help = {
      .name = "pushpull doctor",
      .summary = "what this host has for a job, and why it cannot take part in a running one",
      .usage = {"pushpull doctor", "srun pushpull doctor",
                "pushpull doctor --join tcp://HOST:PORT"},
      .options = doctor_options()};
  return help;
}

int doctor_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, doctor_options(), JobFlags::kRefuse);
  if (print_help(line, doctor_help(), PUSHPULL_VERSION)) return 0;
  if (!line.positional.empty()) {
    throw Error(ErrorCode::kUsage,
                "[doctor] '" + printable(line.positional.front()) +
                    "' is not a flag; a job's address is --join tcp://HOST:PORT");
  }
  if (!line.local.contains("join")) return examine_host();
  const std::string& address = line.local.at("join");
  parse_address(address, "join");
  const std::vector<Finding> findings =
      check_job(address, keys_of(line), seconds_of(line, "join-timeout", kDoctorSeconds));
  std::cout << doctor_text(findings);
  return doctor_exit_code(findings);
}

}  // namespace pushpull
