#include "cli/doctor/launcher_check.h"

#include <algorithm>

#include "common/base/process.h"
#include "common/launch/local_place.h"
#include "common/launch/placement.h"

namespace pushpull {

TaskFinding check_launcher(const Environment& environment, const std::string& host_name) {
  TaskFinding task;
  try {
    const std::vector<Claim> claims = read_claims(environment, host_name);
    if (claims.empty()) {
      task.finding = fine("launcher", "none: no variable of srun, mpirun, torchrun or Kubernetes");
      return task;
    }
    const auto complete = std::ranges::find_if(claims, [](const Claim& claim) {
      return claim.missing.empty() && claim.rank && claim.size;
    });
    if (complete != claims.end()) {
      task.tasks = complete->size->value;
      task.rank = complete->rank->value;
    }
    if (const auto local = local_place(environment)) task.local_rank = local->rank.value;
    task.finding = fine("launcher", summary_line(place_task({}, claims)));
  } catch (const Error& e) {
    task.finding = warning("launcher", e.what());
  }
  return task;
}

TaskFinding check_launcher_here() {
  return check_launcher(environment_of_this_process(), host_name());
}

}  // namespace pushpull
