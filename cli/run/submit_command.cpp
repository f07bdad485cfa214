// `pushpull submit`.

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "cli/commands.h"
#include "cli/run/deepspeed_config.h"
#include "cli/run/submission.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"

namespace pushpull {
namespace {

// Returns the path of the script in the output folder.
std::string write_script(const Submission& plan) {
  const std::string path = plan.out + "/submit.sh";
  std::error_code error;
  std::filesystem::create_directories(plan.out, error);
  std::ofstream file(path);
  file << sbatch_script(plan);
  file.close();
  if (!file) {
    throw Error(ErrorCode::kIo,
                "[submit] cannot write " + printable(path, kMaxPathBytes) + ": " +
                    std::strerror(errno));  // NOLINT(concurrency-mt-unsafe): one thread
  }
  std::filesystem::permissions(path, std::filesystem::perms::owner_exec,
                               std::filesystem::perm_options::add, error);
  return path;
}

// Runs sbatch, which prints the number of the job, or why it refuses. Returns its exit code.
int run_sbatch(const std::string& script) {
  std::cout.flush();
  const pid_t pid = fork();
  if (pid == 0) {
    execlp("sbatch", "sbatch", script.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) {
    throw Error(ErrorCode::kFailed,
                "[submit] sbatch did not end by itself; `sbatch " + script + "` submits the job");
  }
  return WEXITSTATUS(status);
}

int submit_script(const std::string& script) {
  const int code = run_sbatch(script);
  if (code == 0) return 0;
  throw Error(ErrorCode::kUsage, code == 127
                                     ? "[submit] there is no sbatch in PATH: run `sbatch " +
                                           script + "` on a host of the cluster that has Slurm"
                                     : "[submit] sbatch ended with exit code " +
                                           std::to_string(code) + " and has not submitted " +
                                           script + "; --sbatch-args adds what the site asks for");
}

}  // namespace

const ProgramHelp& submit_help() {
  static const ProgramHelp help = {
      .name = "pushpull submit",
      .summary =
          "a job for Slurm, as a batch script that survives preemption and time limits, or for "
          "Kubernetes, as a JobSet",
      .usage = {"pushpull submit --job FILE --nodes N --workers N --out DIR [--go] [--time T] ...",
                "pushpull submit --job FILE --nodes N --out DIR --print sbatch|jobset"},
      .options = submit_options(),
      .job_flags = JobFlags::kAccept};
  return help;
}

int submit_command(int argc, const char* const* argv) {
  CommandLine line = parse_command_line(argc, argv, submit_options());
  if (print_help(line, submit_help(), PUSHPULL_VERSION)) return 0;
  const std::string workers = line.own("workers", line.own("nodes", "1"));
  for (const std::string& note : add_deepspeed_keys(line, parse_int64(workers).value_or(0))) {
    std::cerr << note << std::endl;  // the script may be on standard output
  }
  if (!line.positional.empty()) {
    throw Error(ErrorCode::kUsage, "[submit] '" + printable(line.positional.front()) +
                                       "' is not a flag; give the job file as --job FILE");
  }
  const Submission plan = plan_submission(line, program_folder());
  const std::string print = line.own("print", "");
  if (print == "sbatch" || print == "jobset") {
    if (line.local.contains("go")) {
      throw Error(ErrorCode::kUsage, "[submit] --print and --go: leave one of them out");
    }
    std::cout << (print == "sbatch" ? sbatch_script(plan) : job_set(plan));
    return 0;
  }
  if (line.local.contains("print")) {
    throw Error(ErrorCode::kUsage,
                "[submit] --print is '" + printable(print) + "': must be sbatch or jobset");
  }
  const std::string script = write_script(plan);
  if (line.local.contains("go")) return submit_script(script);
  std::cout << "written to " << script << "; `sbatch " << script << "` submits it\n";
  return 0;
}

}  // namespace pushpull
