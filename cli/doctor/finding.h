// A finding of `pushpull doctor`: one line for each check, and the remedy where something is
// wrong. Plain data.
#pragma once

#include <string>

#include "common/base/error.h"

namespace pushpull {

struct Finding {
  enum Level { kOk, kWarning, kError };
  Level level = kOk;
  std::string check;  // a word: "port", "version", "server 1"
  std::string text;
  ErrorCode code = ErrorCode::kFailed;  // of an error
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
