// A step of Slurm: srun inside the allocation of salloc or sbatch. Sources: srun(1), and what version
// 22.05 does. Any thread.
#pragma once

#include "cli/run/step_launcher.h"

namespace pushpull {

class SlurmStep final : public StepLauncher {
 public:
  explicit SlurmStep(Environment environment) : environment_(std::move(environment)) {}

  std::string program() const override { return "srun"; }
  std::optional<int64_t> tasks() const override;
  std::vector<std::string> nodes(size_t limit) const override;
  std::vector<std::string> words(int64_t tasks, const std::vector<std::string>& variables,
                                 const std::vector<std::string>& more) const override;
  TaskPlace place() const override;
  bool signals_are_for_the_job() const override { return true; }
  std::string refusal(const std::string& line) const override;

 private:
  const Environment environment_;
};

// Returns the sum of SLURM_TASKS_PER_NODE, such as "2(x3),1" = 7, or nothing for other text.
std::optional<int64_t> sum_of_tasks(const std::string& text);

}  // namespace pushpull
