// `pushpull submit`: writes the batch script of a job for Slurm, or the manifest of a JobSet for
// Kubernetes, and submits the script. Main thread.
#pragma once

namespace pushpull {

struct ProgramHelp;

const ProgramHelp& submit_help();

// argv[0] is "submit". Returns the exit code; throws Error.
int submit_command(int argc, const char* const* argv);

}  // namespace pushpull
