// The launcher of this task, as `--join auto` sees it. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/finding.h"
#include "common/launch/claim.h"

namespace pushpull {

struct TaskFinding {
  Finding finding;
  int64_t tasks = 1;  // of the launcher; 1 also if there is none
  int64_t rank = 0;
  int64_t local_rank = 0;
};

//   host_name: full name of this host.
TaskFinding check_launcher(const Environment& environment, const std::string& host_name);

// The same for this process.
TaskFinding check_launcher_here();

}  // namespace pushpull
