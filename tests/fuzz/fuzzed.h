// Helpers of the fuzzers: an input as text, and the check that bad input is refused with an Error
// of one line, with a tag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/base/error.h"

namespace pushpull {

inline std::string text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void require(bool condition, const char* text) {
  if (condition) return;
  std::fprintf(stderr, "fuzzed: %s\n", text);
  std::abort();
}

// Runs `parse`, which may refuse its input with this code. Aborts if it refuses in any other way.
template <class Parse>
void may_refuse(ErrorCode code, const Parse& parse) {
  try {
    parse();
  } catch (const Error& e) {
    const std::string text = e.what();
    if (e.code() != code) std::fprintf(stderr, "code %d: ", static_cast<int>(e.code()));
    if (e.code() != code) std::fprintf(stderr, "%s\n", text.c_str());
    require(e.code() == code, "a refusal with another exit code");
    require(text.starts_with('['), "a refusal without a tag");
    require(text.find('\n') == std::string::npos, "a refusal of several lines");
  }
}

}  // namespace pushpull
