// What a call that the device cannot do says.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "common/base/error.h"

namespace pushpull::device {

// Anything but Error(kDevice) is a failure of the test.
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
