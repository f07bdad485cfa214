// Returns the error of a call that the device refuses.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "common/base/error.h"

namespace pushpull::device {

// The test fails if `call` throws anything but Error(kDevice).
inline std::string failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kDevice) << e.what();
    return e.what();
  }
  return "no failure";
}

}  // namespace pushpull::device
