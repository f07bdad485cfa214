#include <gtest/gtest.h>

#include "cli/run/worker_command.h"

namespace pushpull {
namespace {

TEST(ShellCommand, QuotesTheCommandForAShell) {
  EXPECT_EQ(shell_command("pushpull",
                          {"compare", "--tune", "lr=0.5,1", "--out", "my results", "", "it's"}),
            "pushpull compare --tune lr=0.5,1 --out 'my results' '' 'it'\\''s'");
}

}  // namespace
}  // namespace pushpull
