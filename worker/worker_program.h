// pushpull-worker: joins a job, computes gradients, pushes and pulls until the job is over.
#pragma once

namespace pushpull {

// Runs the program and returns its exit code. Errors have been logged by then.
int worker_program(int argc, char** argv);

}  // namespace pushpull
