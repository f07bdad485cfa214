#include "cli/run/mpi_step.h"

#include <algorithm>

#include "cli/run/slurm_step.h"
#include "common/launch/claim.h"

namespace pushpull {
namespace {

int64_t needed_of_mpi(const Environment& environment, const char* variable) {
  const auto found = number_of(environment, {variable});
  if (found) return found->value;
  refuse_launch(std::string(variable) + " is missing, so this process is no task of Open MPI's " +
                "mpirun; pushpull run --over mpi needs Open MPI");
}

bool says_binding(const std::string& word) { return word.find("bind-to") != std::string::npos; }

}  // namespace

// mpirun inside Slurm starts its tasks in the allocation. Elsewhere it has slots, which no variable
// tells.
std::optional<int64_t> MpiStep::tasks() const {
  return environment_.contains("SLURM_JOB_ID") ? SlurmStep(environment_).tasks() : std::nullopt;
}

std::vector<std::string> MpiStep::nodes(size_t limit) const {
  return SlurmStep(environment_).nodes(limit);
}

std::vector<std::string> MpiStep::words(int64_t tasks, const std::vector<std::string>& variables,
                                        const std::vector<std::string>& more) const {
  std::vector<std::string> words{program(), "-np", std::to_string(tasks)};
  // mpirun binds each task by default to one core, with all its threads.
  const bool bound = std::ranges::any_of(more, says_binding) ||
                     environment_.contains("OMPI_MCA_hwloc_base_binding_policy");
  if (!bound) words.insert(words.end(), {"--bind-to", "none"});
  // The value goes by the environment: other users can read command lines.
  for (const std::string& name : variables) words.insert(words.end(), {"-x", name});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TaskPlace MpiStep::place() const {
  return {needed_of_mpi(environment_, "OMPI_COMM_WORLD_RANK"),
          needed_of_mpi(environment_, "OMPI_COMM_WORLD_SIZE"),
          needed_of_mpi(environment_, "OMPI_COMM_WORLD_LOCAL_RANK")};
}

std::string MpiStep::refusal(const std::string& line) const {
  const auto has = [&line](const char* text) { return line.find(text) != std::string::npos; };
  if (has("attempt to run as root") || has("run as root")) {
    return "mpirun refuses to run as root: run it as another user, or accept what it warns of with "
           "OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 in the environment";
  }
  if (has("not enough slots available")) {
    return "mpirun has fewer slots than --workers: name more of them (--over-args='--hostfile "
           "FILE'), lower --workers, or share cores with --over-args=--oversubscribe";
  }
  if (has("unable to find the specified executable") || has("could not access")) {
    return "mpirun does not find pushpull on a node: it must have the same path on all nodes";
  }
  if (has("ORTE was unable to reliably start one or more daemons") ||
      has("ORTE does not know how to route a message")) {
    return "mpirun cannot start its daemon on a node: `ssh NODE orted` must work without a "
           "password";
  }
  return "";
}

}  // namespace pushpull
