#include "cli/run/ending.h"

#include <csignal>

#include "common/base/error.h"
#include "common/base/process.h"

namespace pushpull {

bool Ending::is_consequence() const {
  return signal == 0 && (code == static_cast<int>(ErrorCode::kUnreachable) ||
                         code == static_cast<int>(ErrorCode::kPeerLost));
}

bool Ending::was_asked_for() const {
  const int by = exit_code() - 128;
  return by == SIGINT || by == SIGTERM || by == SIGHUP;
}

bool Ending::is_for_good() const {
  if (signal != 0) return false;
  switch (static_cast<ErrorCode>(code)) {
    case ErrorCode::kUsage:
    case ErrorCode::kData:
    case ErrorCode::kProtocol:
    case ErrorCode::kNotFinite:
    case ErrorCode::kRefused:
      return true;
    default:
      return false;
  }
}

int Ending::exit_code() const {
  if (too_early) return static_cast<int>(ErrorCode::kFailed);
  return signal != 0 ? 128 + signal : code;
}

bool Ending::is_for_good_here() const {
  constexpr int kNotExecuted = 127;
  const bool cannot_run = code == kNotExecuted || code == static_cast<int>(ErrorCode::kDevice);
  return is_for_good() || too_early || (signal == 0 && cannot_run);
}

std::string Ending::describe() const {
  if (signal != 0) {
    return "was killed by signal " + std::to_string(signal) + " (" + signal_name(signal) + ")";
  }
  return "ended with " + code_text(code) +
         (too_early ? " before training began; a worker must join the job and stay until its end"
                    : "");
}

}  // namespace pushpull
