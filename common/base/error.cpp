#include "common/base/error.h"

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
      return "resource";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kStopped:
      return "stopped with a checkpoint";
    case ErrorCode::kRefused:
      return "refused";
  }
  return nullptr;
}

}  // namespace

std::string code_text(int code) {
  const char* name = code_name(code);
  return "exit code " + std::to_string(code) +
         (name == nullptr ? std::string() : std::string(" (") + name + ")");
}

void assertion_failed(const char* condition, const char* file, int line) {
  throw Error(ErrorCode::kInternal,
              std::string("[assert] ") + file + ":" + std::to_string(line) + ": " + condition +
                  " does not hold; this is a fault of pushpull, please report it");
}

}  // namespace pushpull
