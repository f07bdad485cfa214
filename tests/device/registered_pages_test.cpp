#include "common/device/registered_pages.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace pushpull::device {
namespace {

TEST(RegisteredPages, HoldMemoryWithinOneRange) {
  std::vector<std::byte> memory(100);
  const std::byte* first = memory.data();
  RegisteredPages pages;
  EXPECT_FALSE(pages.hold(first, 1, Access::kReadOnly));
  pages.add(first + 10, 20, Access::kReadWrite);
  pages.add(first + 30, 10, Access::kReadOnly);
  EXPECT_EQ(pages.size(), 2U);
  EXPECT_FALSE(pages.hold(first + 9, 1, Access::kReadOnly));
  EXPECT_FALSE(pages.hold(first + 9, 5, Access::kReadOnly));
  EXPECT_TRUE(pages.hold(first + 10, 20, Access::kReadOnly));
  EXPECT_TRUE(pages.hold(first + 10, 20, Access::kReadWrite));
  EXPECT_TRUE(pages.hold(first + 29, 1, Access::kReadWrite));
  EXPECT_FALSE(pages.hold(first + 29, 2, Access::kReadOnly)) << "across two ranges";
  EXPECT_TRUE(pages.hold(first + 30, 10, Access::kReadOnly));
  EXPECT_FALSE(pages.hold(first + 30, 1, Access::kReadWrite)) << "writable";
  EXPECT_FALSE(pages.hold(first + 40, 1, Access::kReadOnly));
  pages.remove(first + 10);
  EXPECT_FALSE(pages.hold(first + 10, 1, Access::kReadOnly));
  EXPECT_TRUE(pages.hold(first + 30, 1, Access::kReadOnly));
}

TEST(RegisteredPages, ARangeIsRegisteredOnce) {
  std::vector<std::byte> memory(100);
  const std::byte* first = memory.data();
  RegisteredPages pages;
  pages.add(first + 10, 20, Access::kReadWrite);
  EXPECT_THROW(pages.add(first + 10, 20, Access::kReadWrite), Error);
  EXPECT_THROW(pages.add(first + 29, 2, Access::kReadWrite), Error);
  EXPECT_THROW(pages.add(first, 11, Access::kReadWrite), Error);
  EXPECT_THROW(pages.remove(first), Error);
  EXPECT_TRUE(pages.hold(first + 10, 20, Access::kReadWrite));
}

}  // namespace
}  // namespace pushpull::device
