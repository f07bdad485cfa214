#include "cli/run/step_launcher.h"

#include <unistd.h>

#include <algorithm>

#include "cli/run/mpi_step.h"
#include "cli/run/slurm_step.h"
#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

bool in_path(const std::string& program, const Environment& environment) {
  const auto found = environment.find("PATH");
  const std::string path = found == environment.end() ? "/usr/bin:/bin" : found->second;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    if (access(((folder.empty() ? "." : folder) + "/" + program).c_str(), X_OK) == 0) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::unique_ptr<StepLauncher> make_step_launcher(const std::string& over,
                                                 const Environment& environment) {
  if (over == "slurm") return std::make_unique<SlurmStep>(environment);
  if (over == "mpi") return std::make_unique<MpiStep>(environment);
  throw Error(ErrorCode::kUsage, "[run] --over is '" + printable(over) + "': must be slurm or mpi");
}

void check_step_launcher(const std::string& over, const Environment& environment) {
  const std::string program = make_step_launcher(over, environment)->program();
  if (!in_path(program, environment)) {
    throw Error(ErrorCode::kUsage, "[run] --over " + over + ": there is no " + program +
                                       " in PATH; load its module or install it, or leave --over "
                                       "out to run on this machine alone");
  }
  if (over == "slurm" && !environment.contains("SLURM_JOB_ID")) {
    throw Error(ErrorCode::kUsage,
                "[run] --over slurm: SLURM_JOB_ID is not set, so this is no allocation; start it "
                "inside salloc or sbatch, or let `pushpull submit` write the script");
  }
}

std::optional<int64_t> server_beside(const TaskPlace& place, int64_t servers) {
  // The task of server s is the one at s * size / servers.
  for (int64_t server = 1; server < servers; ++server) {
    if (server * place.size / servers == place.rank) return server;
  }
  return std::nullopt;
}

}  // namespace pushpull
