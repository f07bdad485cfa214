// Skips a test that needs a GPU if there is none; ctest counts it apart from passed. With
// PUSHPULL_REQUIRE_DEVICE=1 the test fails instead.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/device/device.h"

namespace pushpull::device {

inline bool is_device_required() {
  const char* value = std::getenv("PUSHPULL_REQUIRE_DEVICE");
  return value != nullptr && std::string(value) == "1";
}

}  // namespace pushpull::device

// For a test or its SetUp.
#define PP_NEED_DEVICE()                                                                     \
  if (std::string why; ::pushpull::device::count(&why) == 0) {                               \
    if (::pushpull::device::is_device_required()) FAIL() << "a device is required: " << why; \
    GTEST_SKIP() << why;                                                                     \
  }                                                                                          \
  static_cast<void>(0)
