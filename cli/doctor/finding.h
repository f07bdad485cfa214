// A finding of `pushpull doctor`: the result of one check and, if something is wrong, the remedy.
// Plain data.
#pragma once

#include <string>

#include "common/base/error.h"

namespace pushpull {

struct Finding {
  enum Level { kOk, kWarning, kError };
  Level level = kOk;
  std::string check;  // one or two words: "port", "version", "server 1"
  std::string text;
  ErrorCode code = ErrorCode::kFailed;  // exit code if level is kError
};

inline Finding fine(std::string check, std::string text) {
  return {Finding::kOk, std::move(check), std::move(text)};
}
inline Finding warning(std::string check, std::string text) {
  return {Finding::kWarning, std::move(check), std::move(text)};
}
inline Finding wrong(std::string check, std::string text, ErrorCode code) {
  return {Finding::kError, std::move(check), std::move(text), code};
}

}  // namespace pushpull
