#include "common/host/kernel_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CpuList, IsReadAsTheKernelWritesIt) {
  EXPECT_THAT(*parse_cpu_list("0-3,8\n"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(*parse_cpu_list("7"), ElementsAre(7));
  EXPECT_THAT(*parse_cpu_list("4,2-3,2"), ElementsAre(2, 3, 4)) << "in order, each once";
  EXPECT_THAT(*parse_cpu_list("\n"), IsEmpty());
}

TEST(CpuList, OtherTextIsNone) {
  for (const char* text : {"a", "1-", "-1", "3-1", "0,,2", "0-3,", "1 2", "0-65536", "1-2-3",
                           "99999999999999999999"}) {
    EXPECT_EQ(parse_cpu_list(text), std::nullopt) << text;
  }
}

TEST(CpuList, IsWrittenWithRanges) {
  EXPECT_EQ(cpu_list_text({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(cpu_list_text({0, 1}), "0-1");
  EXPECT_EQ(cpu_list_text({5}), "5");
  EXPECT_EQ(cpu_list_text({}), "");
}

}  // namespace
}  // namespace pushpull
