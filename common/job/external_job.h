// Jobs with model = external, for the commands that compute a job's model themselves. Any thread.
#pragma once

#include <string>

#include "common/job/job.h"

namespace pushpull {

// Throws Error(kUsage) if only the workers' program has the job's model.
//   where: the command's tag and the file, such as "[eval] out/checkpoints".
//   instead: how to reach the goal with that program.
void refuse_external(const Job& job, const std::string& where, const std::string& instead);

}  // namespace pushpull
