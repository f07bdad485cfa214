// The batch script of Slurm for a submission. Any thread.
#pragma once

#include <string>

#include "cli/submit/submission.h"

namespace pushpull {

// Returns the text of the script: the allocation, `pushpull run --over slurm` in it, and what follows
// when Slurm is about to take the allocation away. In an array each task has a folder of its own.
std::string sbatch_script(const Submission& plan);

}  // namespace pushpull
