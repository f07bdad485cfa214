#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "common/device/device.h"
#include "tests/common/thrown.h"

namespace pushpull::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(NoCuda, ABuildWithoutCudaSaysSo) {
  EXPECT_FALSE(compiled());
  std::string why;
  EXPECT_EQ(count(&why), 0);
  EXPECT_EQ(count(), 0);
  EXPECT_THAT(why, HasSubstr("no CUDA"));
  EXPECT_THAT(thrown(ErrorCode::kDevice,
                     [&] {
                       open({DeviceName::kCuda, 1});
                     }),
              AllOf(HasSubstr("[device] cuda:1 cannot be used: this build has no CUDA"),
                    HasSubstr("--device cpu")));
}

}  // namespace
}  // namespace pushpull::device
