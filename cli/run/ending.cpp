#include "cli/run/ending.h"

#include "common/base/error.h"
#include "common/base/process.h"

namespace pushpull {
namespace {

const char* code_name(int code) {
  switch (static_cast<ErrorCode>(code)) {
    case ErrorCode::kFailed:
      return "failed";
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kData:
      return "data";
    case ErrorCode::kUnreachable:
      return "unreachable";
    case ErrorCode::kPeerLost:
      return "peer lost";
    case ErrorCode::kProtocol:
      return "protocol";
    case ErrorCode::kNotFinite:
      return "not finite";
    case ErrorCode::kIo:
      return "file";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kStopped:
      return "stopped with a checkpoint";
    case ErrorCode::kRefused:
      return "refused";
  }
  return nullptr;
}

// Returns text such as "exit code 3 (data)".
std::string code_text(int code) {
  const char* name = code_name(code);
  return "exit code " + std::to_string(code) +
         (name == nullptr ? std::string() : std::string(" (") + name + ")");
}

}  // namespace

std::string Ending::describe() const {
  if (signal != 0) {
    return "was killed by signal " + std::to_string(signal) + " (" + signal_name(signal) + ")";
  }
  return "ended with " + code_text(code);
}

}  // namespace pushpull
