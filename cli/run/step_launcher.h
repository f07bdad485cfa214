// The programs that start the tasks of a job on all its nodes: Slurm's srun, Open MPI's mpirun. Each
// knows its command line, the allocation around it, the variables of its tasks, and the reasons for
// which it refuses. No I/O except a look at PATH. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/launch/claim.h"

namespace pushpull {

// The place of one task among those of its launcher.
struct TaskPlace {
  int64_t rank = 0;  // 0 to size - 1
  int64_t size = 1;
  int64_t local_rank = 0;  // among the tasks of its node
};

class StepLauncher {
 public:
  virtual ~StepLauncher() = default;

  // Returns the program's name, "srun", which messages use, too.
  virtual std::string program() const = 0;
  // Returns the number of tasks of the allocation, or nothing if no variable says it.
  virtual std::optional<int64_t> tasks() const = 0;
  // Returns names of nodes of the allocation, at most `limit`; none if no variable names them.
  virtual std::vector<std::string> nodes(size_t limit) const = 0;
  // Returns the command line up to the program of the tasks.
  //   variables: names of variables that the tasks get with this process's values.
  //   more: words of --over-args.
  virtual std::vector<std::string> words(int64_t tasks, const std::vector<std::string>& variables,
                                         const std::vector<std::string>& more) const = 0;
  // Returns the place of a task in which this process runs. Throws Error(kUsage) naming a variable
  // that is missing or wrong.
  virtual TaskPlace place() const = 0;
  // Returns the launcher's name of the node of a task in which this process runs, or "" if no variable
  // says it.
  virtual std::string node() const = 0;
  // Returns true if a signal to a task comes from the batch system, which takes the nodes away; false
  // if the launcher itself ends tasks by it, after one has failed.
  virtual bool signals_are_for_the_job() const = 0;
  // Returns why the launcher refuses, and the way out, if a line of its output says so, else "".
  virtual std::string refusal(const std::string& line) const = 0;
};

// Returns the launcher that --over names: "slurm" or "mpi".
//   environment: of this process.
// Throws Error(kUsage) for another name.
std::unique_ptr<StepLauncher> make_step_launcher(const std::string& over,
                                                 const Environment& environment);

// Throws Error(kUsage) if the launcher cannot start a step here: its program is not in PATH, or there
// is no allocation.
//   over: as make_step_launcher takes it.
void check_step_launcher(const std::string& over, const Environment& environment);

// Returns the number of the further server that starts beside the worker of this task, or nothing.
// Servers 1 to servers - 1 are spread evenly: with one for each node, and as many tasks on each node,
// the first task of each node has one. Server 0 is the coordinator, which is no part of the step.
std::optional<int64_t> server_beside(const TaskPlace& place, int64_t servers);

// A step of Slurm: srun inside the allocation of salloc or sbatch. Sources: srun(1), and what version
// 22.05 does. Any thread.
class SlurmStep final : public StepLauncher {
 public:
  explicit SlurmStep(Environment environment) : environment_(std::move(environment)) {}

  std::string program() const override { return "srun"; }
  std::optional<int64_t> tasks() const override;
  std::vector<std::string> nodes(size_t limit) const override;
  std::vector<std::string> words(int64_t tasks, const std::vector<std::string>& variables,
                                 const std::vector<std::string>& more) const override;
  TaskPlace place() const override;
  std::string node() const override;
  bool signals_are_for_the_job() const override { return true; }
  std::string refusal(const std::string& line) const override;

 private:
  const Environment environment_;
};

// Returns the sum of SLURM_TASKS_PER_NODE, such as "2(x3),1" = 7, or nothing for other text.
std::optional<int64_t> sum_of_tasks(const std::string& text);

// Tasks of Open MPI's mpirun, version 4 or 5: on this host, on those of a host file, or in the
// allocation of a batch system. Source: mpirun(1). Any thread.
class MpiStep final : public StepLauncher {
 public:
  explicit MpiStep(Environment environment) : environment_(std::move(environment)) {}

  std::string program() const override { return "mpirun"; }
  std::optional<int64_t> tasks() const override;
  std::vector<std::string> nodes(size_t limit) const override;
  std::vector<std::string> words(int64_t tasks, const std::vector<std::string>& variables,
                                 const std::vector<std::string>& more) const override;
  TaskPlace place() const override;
  std::string node() const override { return ""; }
  bool signals_are_for_the_job() const override { return false; }
  std::string refusal(const std::string& line) const override;

 private:
  const Environment environment_;
};

}  // namespace pushpull
