#include "cli/run/step_launcher.h"

#include <unistd.h>

#include <algorithm>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/launch/claim.h"
#include "common/launch/node_list.h"

namespace pushpull {

namespace {

int64_t needed_of_slurm(const Environment& environment, const char* variable) {
  const auto found = number_of(environment, {variable});
  if (found) return found->value;
  refuse_launch(std::string(variable) + " is missing, so this process is no task of srun");
}

bool has(const std::string& line, const char* text) { return line.find(text) != std::string::npos; }

}  // namespace

std::optional<int64_t> sum_of_tasks(const std::string& text) {
  int64_t sum = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    std::optional<int64_t> times = 1;
    if (const size_t open = part.find("(x"); open != std::string::npos && part.back() == ')') {
      times = parse_int64(part.substr(open + 2, part.size() - open - 3));
      part.resize(open);
    }
    const auto tasks = parse_int64(part);
    constexpr int64_t kMost = 1'000'000;
    if (!tasks || !times || *tasks < 0 || *times < 0 || *tasks > kMost || *times > kMost) {
      return std::nullopt;
    }
    sum += *tasks * *times;
    begin = end + 1;
  }
  return sum > 0 ? std::optional(sum) : std::nullopt;
}

// SLURM_NTASKS is set only if the allocation was asked for tasks. Inside a step both are those of the
// step, which is the part of the allocation that the user has asked for.
std::optional<int64_t> SlurmStep::tasks() const {
  if (const auto tasks = number_of(environment_, {"SLURM_NTASKS", "SLURM_NPROCS"})) {
    return tasks->value;
  }
  const auto text = text_of(environment_, {"SLURM_TASKS_PER_NODE"});
  return text ? sum_of_tasks(text->value) : std::nullopt;
}

// Not SLURM_LAUNCH_NODE_IPADDR: it is the address of an interface that other nodes may not reach.
std::vector<std::string> SlurmStep::nodes(size_t limit) const {
  const auto list = text_of(environment_, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  return list ? expand_node_list(list->value, list->from, limit) : std::vector<std::string>{};
}

std::vector<std::string> SlurmStep::words(int64_t tasks,
                                          const std::vector<std::string>& /*variables*/,
                                          const std::vector<std::string>& more) const {
  // Each flag takes the place of a default that a site or a variable may set: the environment of
  // sbatch --export=NONE, and the end of a whole step when one task ends.
  std::vector<std::string> words{program(),  "--export=ALL", "--kill-on-bad-exit=0",
                                 "--wait=0", "--mpi=none",   "--ntasks=" + std::to_string(tasks)};
  if (const auto nodes = number_of(environment_, {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"})) {
    words.push_back("--nodes=" + std::to_string(std::min(nodes->value, tasks)));
  }
  // From 22.05 on srun does not take it from the allocation.
  if (const auto cpus = number_of(environment_, {"SLURM_CPUS_PER_TASK"})) {
    words.push_back("--cpus-per-task=" + std::to_string(cpus->value));
  }
  // The step around this process, such as the shell of an interactive step, holds the CPUs.
  if (environment_.contains("SLURM_STEP_ID")) words.emplace_back("--overlap");
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TaskPlace SlurmStep::place() const {
  return {needed_of_slurm(environment_, "SLURM_PROCID"),
          needed_of_slurm(environment_, "SLURM_NTASKS"),
          needed_of_slurm(environment_, "SLURM_LOCALID")};
}

std::string SlurmStep::node() const {
  const auto name = text_of(environment_, {"SLURMD_NODENAME"});
  return name ? name->value : "";
}

std::string SlurmStep::refusal(const std::string& line) const {
  if (!line.starts_with("srun: ")) return "";
  if (has(line, "More processors requested than permitted")) {
    return "the allocation has fewer CPUs than its tasks need: ask for more with salloc or sbatch, "
           "or lower --workers; --over-args=--overcommit shares CPUs";
  }
  if (has(line, "Node failure on") || has(line, "Job step aborted due to node failure")) {
    return "a node of the allocation failed";
  }
  if (has(line, "Job has expired") || has(line, "Invalid job id specified")) {
    return "the allocation of SLURM_JOB_ID has ended";
  }
  if (has(line, "invalid option") || has(line, "unrecognized option")) {
    return "this srun does not know a flag: pushpull needs Slurm 20.11 or newer; see --over-args";
  }
  if (has(line, "Unable to create step")) {
    const size_t reason = line.rfind(": ");
    return "Slurm does not start the step: " + line.substr(reason + 2);
  }
  return "";
}

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
