#include "models/ops/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull::ops {
namespace {

// Returns the text of the error for `text`.
std::string refusal(const std::string& text) {
  return thrown(ErrorCode::kProtocol, [&] { Choices::parse(text); });
}

TEST(Choices, ParseReadsTheirText) {
  Choices made;
  made.set("matmul/2x3x4", "lt:00ff");
  made.set("convolution/1x1", "cudnn 1, then 5");
  EXPECT_EQ(made.text(), "convolution/1x1 cudnn 1, then 5\nmatmul/2x3x4 lt:00ff\n");
  const Choices read = Choices::parse(made.text());
  EXPECT_EQ(read.text(), made.text());
  ASSERT_NE(read.find("convolution/1x1"), nullptr);
  EXPECT_EQ(*read.find("convolution/1x1"), "cudnn 1, then 5");
  EXPECT_EQ(read.find("convolution/1x2"), nullptr);
  EXPECT_TRUE(Choices::parse("").empty());
}

TEST(Choices, AreSortedInAnyOrderOfTheirMaking) {
  EXPECT_EQ(Choices::parse("b 1\na 2\n").text(), "a 2\nb 1\n");
}

TEST(Choices, MalformedTextIsRefused) {
  EXPECT_THAT(refusal("a"), ::testing::HasSubstr("cut off: 'a'"));
  EXPECT_THAT(refusal("a 1\nb 2"), ::testing::HasSubstr("cut off: 'b 2'"));
  EXPECT_THAT(refusal("a\n"), ::testing::HasSubstr("expected 'KEY VALUE', got 'a'"));
  EXPECT_THAT(refusal("a \n"), ::testing::HasSubstr("expected 'KEY VALUE'"));
  EXPECT_THAT(refusal(" 1\n"), ::testing::HasSubstr("expected 'KEY VALUE'"));
  EXPECT_THAT(refusal("\n"), ::testing::HasSubstr("expected 'KEY VALUE'"));
  EXPECT_THAT(refusal("a 1\n\nb 2\n"), ::testing::HasSubstr("expected 'KEY VALUE'"));
  EXPECT_THAT(refusal("a 1\na 1\n"), ::testing::HasSubstr("two choices for 'a'"));
}

TEST(Choices, UnprintableBytesAreRefused) {
  EXPECT_THAT(refusal(std::string("a 1\0\n", 5)), ::testing::HasSubstr("'a 1\\x00'"));
  EXPECT_THAT(refusal("a\t1 2\n"), ::testing::HasSubstr("\\x09"));
  EXPECT_THAT(refusal("a \xff\n"), ::testing::HasSubstr("\\xff"));
  EXPECT_THAT(refusal("a 1\r\n"), ::testing::HasSubstr("\\x0d"));
}

TEST(Choices, TooLargeTextIsRefused) {
  const std::string line = "a " + std::string(Choices::kMaxBytes - 3, 'x') + "\n";
  EXPECT_EQ(line.size(), Choices::kMaxBytes);
  EXPECT_EQ(Choices::parse(line).text(), line);
  EXPECT_THAT(refusal("a" + line), ::testing::HasSubstr("at most 65536 bytes, got 65537"));
}

TEST(Choices, PrefixOfATextIsRefusedUnlessItHasWholeLines) {
  const std::string whole = "k1 value one\nk2 2\nk3 x\n";
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string part = whole.substr(0, n);
    if (part.empty() || part.back() == '\n') {
      EXPECT_EQ(Choices::parse(part).text(), part);
    } else {
      EXPECT_NE(refusal(part), "") << part;
    }
  }
}

}  // namespace
}  // namespace pushpull::ops
