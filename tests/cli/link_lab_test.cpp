// Tests the parsing of links and the errors of labs; tests/e2e/netlab_test.py makes real labs.
#include "cli/run/link_lab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

TEST(ParseLink, SplitsRateDelayAndLoss) {
  const std::optional<LinkSpec> link = parse_link("100mbit,5ms,0.5%");
  ASSERT_TRUE(link);
  EXPECT_EQ(link->text, "100mbit,5ms,0.5%");
  EXPECT_EQ(link->rate, "100mbit");
  EXPECT_EQ(link->delay, "5ms");
  EXPECT_EQ(link->loss, "0.5%");
}

TEST(ParseLink, UnlimitedValuesAreLeftOut) {
  const std::optional<LinkSpec> link = parse_link("any,0ms,0%");
  ASSERT_TRUE(link);
  EXPECT_EQ(link->rate, "");
  EXPECT_EQ(link->delay, "");
  EXPECT_EQ(link->loss, "");
  EXPECT_EQ(parse_link("1.5gbit,200us")->loss, "");
}

TEST(ParseLink, NoneMeansNoLab) { EXPECT_FALSE(parse_link("none")); }

TEST(ParseLink, AMalformedLinkIsNamed) {
  for (const char* text : {"", "100mbit", "100mbit,5", "100,5ms", "100mbit,5ms,", "100mbit,5ms,1",
                           "-1mbit,5ms", "100mbit,5ms,100%", "100mbit,5ms,1%,2", "100 mbit,5ms",
                           "1e3mbit,5ms", "100mbit,5ms;reboot", "$(x)mbit,5ms"}) {
    EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { parse_link(text); }),
                HasSubstr("[link] '" + std::string(text) + "': must be"));
  }
  EXPECT_THROW(parse_link("0mbit,5ms"), Error);
}

TEST(HostsOfJob, ServersHaveTheirOwnAndWorkersShare) {
  EXPECT_EQ(hosts_of_job(2, 8, 4), 4);
  EXPECT_EQ(hosts_of_job(1, 5, 4), 3);
  EXPECT_EQ(hosts_of_job(1, 3, 1), 4);
}

TEST(LinkLab, AMissingScriptIsNamed) {
  const std::string dir = ::testing::TempDir() + "no-such-folder";
  try {
    const LinkLab lab(*parse_link("100mbit,0ms"), 2, dir);
    ADD_FAILURE() << "made a lab without a script";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::AnyOf(HasSubstr(dir), HasSubstr("no ip(8)")));
  }
}

TEST(LinkLabs, AnUnavailableLinkIsNotedAndLeftOut) {
  const std::string dir = ::testing::TempDir() + "no-such-folder";
  std::vector<std::string> notes;
  const LinkLabs labs({"100mbit,0ms", "none", "any,5ms"}, 3, dir, notes);
  EXPECT_THAT(labs.links(), ::testing::ElementsAre(""));
  EXPECT_THAT(notes, ::testing::ElementsAre(HasSubstr("; left out"), HasSubstr("; left out")));
  EXPECT_TRUE(labs.measured().empty());
  LauncherOptions options;
  labs.put_on("", options, 1);
  EXPECT_TRUE(options.places.empty());
}

TEST(LinkLabs, LoopbackReplacesAnEmptyListOfLinks) {
  std::vector<std::string> notes;
  const LinkLabs labs({"100mbit,0ms"}, 3, ::testing::TempDir() + "no-such-folder", notes);
  EXPECT_THAT(labs.links(), ::testing::ElementsAre(""));
  EXPECT_THAT(notes.back(), HasSubstr("loopback"));
}

}  // namespace
}  // namespace pushpull
