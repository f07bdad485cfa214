// The text of an error that a call must throw.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"

namespace pushpull {

// Returns the text of the Error that `call` throws, or "" if it throws none. The test fails if the
// error has another code, or a text of several lines.
template <class Call>
std::string thrown(ErrorCode code, const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_EQ(e.code(), code) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  return "";
}

}  // namespace pushpull
