// `pushpull task`: one task of `pushpull run --over`, which starts it by srun or mpirun. Runs a worker
// and perhaps a server beside it, passes their output on with the task's name, and replaces them. Not
// for users. Main thread.
#pragma once

namespace pushpull {

// argv[0] is "task". Returns the exit code; throws Error.
int task_command(int argc, const char* const* argv);

}  // namespace pushpull
