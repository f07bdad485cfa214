#include "cli/report/html_text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pushpull {
namespace {

TEST(HtmlText, MarkupIsEscaped) {
  EXPECT_EQ(html("<b a='1' c=\"2\">&</b>"),
            "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;&lt;/b&gt;");
}

TEST(HtmlText, CharactersThatXmlForbidsAreShownAsNumbers) {
  EXPECT_EQ(html(std::string_view("a\0b\x01\xff\n", 6)), "a\\x00b\\x01\\xff\\x0a");
  EXPECT_EQ(html("grün"), "grün");
}

TEST(HtmlText, LineBreaksAreKept) {
  EXPECT_EQ(html_lines("a = <1>\n\nb"), "a = &lt;1&gt;\n\nb\n");
  EXPECT_EQ(html_lines(""), "");
}

TEST(HtmlText, ThousandsAreSeparated) {
  EXPECT_EQ(fixed(1234567.891, 2), "1,234,567.89");
  EXPECT_EQ(fixed(-1234, 0), "-1,234");
  EXPECT_EQ(fixed(999, 0), "999");
  EXPECT_EQ(fixed(-0.0001, 2), "0.00");
  EXPECT_EQ(fixed(NAN, 2), "not finite");
  EXPECT_EQ(fixed(-INFINITY, 2), "not finite");
}

TEST(HtmlText, NumbersHaveThreeSignificantDigits) {
  EXPECT_EQ(number(0), "0");
  EXPECT_EQ(number(0.012345), "0.0123");
  EXPECT_EQ(number(1.2345), "1.23");
  EXPECT_EQ(number(12.345), "12.3");
  EXPECT_EQ(number(12345.6), "12,346");
  EXPECT_EQ(number(0.0000123), "1.2e-05");
  EXPECT_EQ(number(NAN), "not finite");
  EXPECT_EQ(number(1e300).size(), 401U);  // 301 digits, 100 commas
}

TEST(HtmlText, TicksAreShortAndExact) {
  EXPECT_EQ(compact(0), "0");
  EXPECT_EQ(compact(0.05), "0.05");
  EXPECT_EQ(compact(2500), "2.5k");
  EXPECT_EQ(compact(10e6), "10M");
  EXPECT_EQ(compact(-3e9), "-3G");
}

TEST(HtmlText, DurationsAreReadable) {
  EXPECT_EQ(duration(12.34), "12.3 s");
  EXPECT_EQ(duration(75.2), "1 min 15 s");
  EXPECT_EQ(duration(7322), "2 h 2 min");
  EXPECT_EQ(duration(NAN), "not finite");
}

TEST(HtmlText, PercentAndCountsHaveTheirUnits) {
  EXPECT_EQ(percent(0.97312, 2), "97.31%");
  EXPECT_EQ(percent(NAN), "not finite");
}

}  // namespace
}  // namespace pushpull
