#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/link/proxy.h"
#include "common/base/unique_fd.h"

namespace pushpull {
namespace {

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe(ends), 0);
    out = UniqueFd(ends[0]);
    in = UniqueFd(ends[1]);
  }
  void say(const std::string& text) const {
    EXPECT_EQ(write(in.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  UniqueFd out;
  UniqueFd in;
};

TEST(LineReader, ALineIsJoinedFromAnyPieces) {
  const Pipe pipe;
  LineReader lines(pipe.out.get());
  pipe.say("de");
  EXPECT_TRUE(lines.read_some());
  EXPECT_EQ(lines.next(), std::nullopt);
  pipe.say("lay 5ms\n\nra");
  EXPECT_TRUE(lines.read_some());
  EXPECT_EQ(lines.next(), "delay 5ms");
  EXPECT_EQ(lines.next(), "");
  EXPECT_EQ(lines.next(), std::nullopt);
}

TEST(LineReader, TheLastLineNeedsNoLineEnd) {
  Pipe pipe;
  LineReader lines(pipe.out.get());
  pipe.say("a\nquit");
  pipe.in.reset();
  EXPECT_TRUE(lines.read_some());
  EXPECT_EQ(lines.next(), "a");
  EXPECT_EQ(lines.next(), std::nullopt);
  EXPECT_FALSE(lines.read_some());
  EXPECT_EQ(lines.next(), "quit");
}

}  // namespace
}  // namespace pushpull
