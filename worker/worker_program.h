// pushpull-worker: joins a job, computes gradients, pushes and pulls until it is over.
#pragma once

namespace pushpull {

// Returns the exit code; what went wrong has been said.
int worker_program(int argc, char** argv);

}  // namespace pushpull
