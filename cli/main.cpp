// The `pushpull` program: dispatches to its commands.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include "cli/bench/bench_command.h"
#include "cli/compare/compare_command.h"
#include "cli/doctor/doctor_command.h"
#include "cli/eval_command.h"
#include "cli/generate_command.h"
#include "cli/keygen_command.h"
#include "cli/models_command.h"
#include "cli/replay/replay_command.h"
#include "cli/report/report_command.h"
#include "cli/run/run_command.h"
#include "cli/status/status_command.h"
#include "cli/submit/submit_command.h"
#include "cli/task/task_command.h"
#include "cli/top/top_command.h"
#include "common/base/error.h"

namespace pushpull {
namespace {

constexpr const char* kHelp =
    R"(pushpull: trains neural networks with servers that hold the weights and workers that compute gradients

usage:
  pushpull run --job FILE --servers S --workers W     train on this machine
  pushpull run --over slurm|mpi --job FILE            train on the nodes of an allocation
  pushpull submit --job FILE --nodes N --out DIR      a batch script for Slurm, or a JobSet
  pushpull compare --job FILE --strategies sync,async --workers 1,2
                                                      the same job under several strategies
  pushpull bench                                      what push and pull cost here, beside the floor
  pushpull status --join tcp://HOST:PORT              members and progress of a running job
  pushpull top --join tcp://HOST:PORT                 the same, live in a terminal
  pushpull report OUT                                 one run's charts and tables as OUT/report.html
  pushpull doctor [--join tcp://HOST:PORT]            what this host has for a job, and why it cannot take part in one
  pushpull eval --checkpoint DIR                      accuracy of a checkpoint on the test split
  pushpull models --job FILE                          parameters and memory of a job's model
  pushpull generate --checkpoint DIR --prompt TEXT    text that a trained language model goes on with
  pushpull keygen FILE                                a key for a job that other users share
  pushpull replay FILE --job FILE                     a recorded run again, to the same bits
  pushpull COMMAND --help                             flags of a command
  pushpull --version

a first run, without a job file or data:
  pushpull run --model mlp --dataset dummy --steps 500 --workers 2

over several machines, start the programs by hand:
  pushpull-server --job FILE --listen tcp://ADDRESS:PORT --workers W --out DIR
  pushpull-worker --join tcp://ADDRESS:PORT           on each machine that computes
)";

using Command = int (*)(int, const char* const*);
constexpr std::array<std::pair<std::string_view, Command>, 14> kCommands = {
    {{"run", run_command},
     {"compare", compare_command},
     {"bench", bench_command},
     {"status", status_command},
     {"top", top_command},
     {"doctor", doctor_command},
     {"eval", eval_command},
     {"generate", generate_command},
     {"keygen", keygen_command},
     {"models", models_command},
     {"replay", replay_command},
     {"report", report_command},
     {"submit", submit_command},
     {"task", task_command}}};

int dispatch(int argc, const char* const* argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "--help" || word == "-h" || word == "help") {
    std::cout << kHelp;
    return 0;
  }
  if (word == "--version") {
    std::cout << "pushpull " PUSHPULL_VERSION "\n";
    return 0;
  }
  for (const auto& [name, command] : kCommands) {
    if (word == name) {
      return command(argc - 1, argv + 1);
    }
  }
  constexpr std::string_view kNames =
      "run, submit, compare, bench, status, top, doctor, eval, models, generate, keygen, replay or "
      "report; --help explains them";
  throw Error(ErrorCode::kUsage, word.empty()
                                     ? "[pushpull] a command is needed: " + std::string(kNames)
                                     : "[pushpull] unknown command '" + std::string(word) +
                                           "': must be " + std::string(kNames));
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
    std::cerr << error.what() << std::endl;
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << "[pushpull] " << error.what() << std::endl;
    return static_cast<int>(pushpull::ErrorCode::kFailed);
  }
}
