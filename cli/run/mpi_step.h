// Tasks of Open MPI's mpirun, version 4 or 5: on this host, on those of a host file, or in the
// allocation of a batch system. Source: mpirun(1). Any thread.
#pragma once

#include "cli/run/step_launcher.h"

namespace pushpull {

class MpiStep final : public StepLauncher {
 public:
  explicit MpiStep(Environment environment) : environment_(std::move(environment)) {}

  std::string program() const override { return "mpirun"; }
  std::optional<int64_t> tasks() const override;
  std::vector<std::string> nodes(size_t limit) const override;
  std::vector<std::string> words(int64_t tasks, const std::vector<std::string>& variables,
                                 const std::vector<std::string>& more) const override;
  TaskPlace place() const override;
  bool signals_are_for_the_job() const override { return false; }
  std::string refusal(const std::string& line) const override;

 private:
  const Environment environment_;
};

}  // namespace pushpull
