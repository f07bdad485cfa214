#include "cli/run/slurm_step.h"

#include <algorithm>

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

}  // namespace pushpull
