// How a process ended, as text and as a shell's exit code. Plain data; any thread.
#pragma once

#include <string>

#include "common/base/error.h"

namespace pushpull {

// The end of a process: by an exit code, or by a signal (then `signal` is not 0).
struct Ending {
  int code = 0;
  int signal = 0;
  bool too_early = false;  // a worker that ended with code 0 although training has not begun

  bool success() const { return code == 0 && signal == 0 && !too_early; }
  // Returns true if the process ended because the job stopped with a checkpoint.
  bool stopped() const { return signal == 0 && code == static_cast<int>(ErrorCode::kStopped); }
  // Returns true if the process failed only because it lost another one, which is the cause.
  bool is_consequence() const;
  // Returns true if SIGINT, SIGTERM or SIGHUP ended the process, whether it handled the signal or
  // not.
  bool was_asked_for() const;
  // Returns true if another process would fail in the same way, whatever the machine.
  bool is_for_good() const;
  // Returns true if another process on this machine would fail in the same way.
  bool is_for_good_here() const;
  // Returns the exit code that a shell reports: the code, or 128 + signal; kFailed if it is 0 too
  // early.
  int exit_code() const;
  // Returns "ended with exit code 3 (data)" or "was killed by signal 9 (SIGKILL)".
  std::string describe() const;
};

}  // namespace pushpull
