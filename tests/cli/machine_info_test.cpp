#include "cli/report/machine_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(MachineInfo, DescribesThisMachine) {
  const MachineInfo info = machine_info();
  EXPECT_GE(info.cores, 1);
  EXPECT_THAT(machine_text(info), HasSubstr(" cores usable, "));
  EXPECT_THAT(machine_text(info), HasSubstr(" GiB, Linux "));
  for (const char* library : {"libzmq", "oneDNN", "protobuf", "glibc", "OpenSSL"}) {
    EXPECT_THAT(info.libraries.at(library), MatchesRegex("[0-9]+\\.[0-9]+.*")) << library;
  }
}

TEST(MachineInfo, FindsTheProcessorsName) {
  EXPECT_EQ(processor_name("processor\t: 0\nmodel name\t: AMD EPYC 7B13  \nflags\t: fpu\n"),
            "AMD EPYC 7B13");
  EXPECT_EQ(processor_name("processor : 0\n"), "");
  EXPECT_EQ(processor_name(""), "");
}

TEST(MachineInfo, BusyTimeLeavesOutIdleCoresAndDisks) {
  EXPECT_EQ(busy_seconds("cpu  100 20 30 9000 800 4 5 6 50 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n", 100.0),
            1.65);
  EXPECT_EQ(busy_seconds("", 100.0), std::nullopt);
  EXPECT_EQ(busy_seconds("cpu 1 2", 100.0), std::nullopt);
  EXPECT_GE(OtherLoad().cores().value_or(0.0), 0.0);
}

TEST(MachineInfo, TheCommitIsAHashOrUnknown) {
  EXPECT_THAT(built_commit(), MatchesRegex("([0-9a-f]+(-dirty)?)?"));
}

}  // namespace
}  // namespace pushpull
