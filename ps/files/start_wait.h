// Runs the tasks on files that precede the coordinator's loop, and hears signals meanwhile. Used by
// the coordinator's thread.
#pragma once

#include <functional>

#include "common/base/process.h"
#include "common/base/task_thread.h"

namespace pushpull {

// Returns when the task has ended; throws what it throws. Prints a line if it takes longer than 10 s.
// Ends the process, with a line that names the file: with 128 + n on signal n if the task takes
// longer than 2 s, with 8 if the file system has not moved a byte for `timeout_s`. A signal that
// arrives during a shorter task stays pending in `signals`.
//   timeout_s: progress-timeout of the job; 0: no limit.
void run_before_start(TaskThread& thread, SignalFd& signals, double timeout_s,
                      const std::function<void()>& task);

}  // namespace pushpull
