// The `pushpull` program: dispatches to its commands.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "cli/bench/bench_options.h"
#include "cli/commands.h"
#include "cli/compare/compare_options.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/host/shortage.h"
#include "common/job/command_line.h"
#include "common/job/program_help.h"

namespace pushpull {
namespace {

constexpr const char* kFirstRuns =
    R"(a first run, without a job file or data:
  pushpull run --model mlp --dataset dummy --steps 500 --workers 2

over several machines, start the programs by hand:
  pushpull-server --job FILE --listen tcp://ADDRESS:PORT --workers W --out DIR
  pushpull-worker --join tcp://ADDRESS:PORT           on each machine that computes
)";

struct Command {
  const ProgramHelp& (*help)();
  int (*run)(int, const char* const*);
};
constexpr std::array kCommands = {
    Command{run_help, run_command},           Command{submit_help, submit_command},
    Command{compare_help, compare_command},   Command{bench_help, bench_command},
    Command{status_help, status_command},     Command{top_help, top_command},
    Command{report_help, report_command},     Command{doctor_help, doctor_command},
    Command{eval_help, eval_command},         Command{models_help, models_command},
    Command{generate_help, generate_command}, Command{keygen_help, keygen_command},
    Command{replay_help, replay_command},     Command{plan_help, plan_command},
    Command{selftest_help, selftest_command},
};

ProgramHelp pushpull_help() {
  ProgramHelp help = {
      .name = "pushpull",
      .summary =
          "trains neural networks with servers that hold the weights and workers that "
          "compute gradients",
      .usage = {"pushpull COMMAND [--FLAG VALUE ...]"},
      .more = kFirstRuns};
  for (const Command& command : kCommands) help.commands.push_back(command.help());
  return help;
}

// Returns all names: "run, compare or bench".
std::string command_names() {
  std::string out;
  for (const Command& command : kCommands) {
    const char* const between = &command == &kCommands.back() ? " or " : ", ";
    out += (out.empty() ? "" : between) + last_word(command.help());
  }
  return out;
}

int dispatch(int argc, const char* const* argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "task") return task_command(argc - 1, argv + 1);  // not for users
  for (const Command& command : kCommands) {
    if (word == last_word(command.help())) return command.run(argc - 1, argv + 1);
  }
  if (word.empty()) {
    throw Error(ErrorCode::kUsage,
                "[pushpull] a command is needed: " + command_names() + "; --help explains them");
  }
  if (word.starts_with('-')) {
    const CommandLine line = parse_command_line(argc, argv, {}, JobFlags::kRefuse);
    if (print_help(line, pushpull_help(), PUSHPULL_VERSION)) return 0;
  }
  if (word == "help") {
    if (argc > 2) return dispatch(3, std::array{argv[0], argv[2], "--help"}.data());
    std::cout << help_text(pushpull_help());
    return 0;
  }
  if (word == "version") return dispatch(2, std::array{argv[0], "--version"}.data());
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.push_back(last_word(command.help()));
  throw Error(ErrorCode::kUsage, "[pushpull] unknown command '" + printable(word) + "'" +
                                     did_you_mean(word, names) + "; there are " + command_names() +
                                     "; --help explains them");
}

// If the parent closed descriptors 0 to 2, opens them on /dev/null. A pipe must not get these
// numbers.
void open_standard_streams() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) {
    fd = open("/dev/null", O_RDWR);
  }
  if (fd > STDERR_FILENO) {
    close(fd);
  }
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  pushpull::open_standard_streams();
  try {
    return pushpull::dispatch(argc, argv);
  } catch (const pushpull::Error& error) {
    std::cerr << pushpull::printable(error.what(), 2 * pushpull::kMaxPathBytes) << std::endl;
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    if (const auto shortage = pushpull::shortage_of(error)) {
      std::cerr << shortage->what() << std::endl;
      return static_cast<int>(shortage->code());
    }
    std::cerr << "[pushpull] " << pushpull::printable(error.what(), 2 * pushpull::kMaxPathBytes)
              << std::endl;
    return static_cast<int>(pushpull::ErrorCode::kFailed);
  }
}
