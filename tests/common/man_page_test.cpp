#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "common/job/program_help.h"

namespace pushpull::man_page_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ManPage, HasTheSectionsThatManExpects) {
  const std::string page = man_page({.name = "pushpull run",
                                     .summary = "trains",
                                     .usage = {"pushpull run --job FILE", "             [--x]"},
                                     .options = {takes("FILE", {"job", "a.ini", "the `job` file"})},
                                     .job_flags = JobFlags::kAccept},
                                    "1.2");
  EXPECT_THAT(page, AllOf(HasSubstr(".TH PUSHPULL\\-RUN 1 \"\" \"pushpull 1.2\""),
                          HasSubstr("\n.SH NAME\npushpull\\-run \\- trains\n"),
                          HasSubstr("\\fBpushpull run\\fR \\-\\-job FILE\n[\\-\\-x]\n"),
                          HasSubstr("\\fB\\-\\-job\\fR \\fIFILE\\fR\nthe \\fBjob\\fR file"),
                          HasSubstr("Default: a.ini."), HasSubstr("pushpull\\-job (5)")));
  EXPECT_THAT(page, Not(HasSubstr("\\-\\-lr")));
}

TEST(ManPage, TextIsNeverARequest) {
  const std::string page = man_page(
      {.name = "x", .summary = "y", .usage = {}, .options = {{"a", "", ".SH \\n 'b' ~ ^"}}}, "1");
  EXPECT_THAT(page, HasSubstr("\n\\&.SH \\en \\(aqb\\(aq \\(ti \\(ha.\n"));
}

TEST(ManPage, TheJobsPageHasEveryKey) {
  const std::string page = job_man_page("1");
  for (const KeyHelp& key : job_keys()) {
    std::string shown;
    for (const char c : key.key) shown += c == '-' ? "\\-" : std::string(1, c);
    EXPECT_THAT(page, HasSubstr("\\fB" + shown + "\\fR = ")) << key.key;
    EXPECT_THAT(page, HasSubstr(environment_name(key.key))) << key.key;
  }
}

}  // namespace
}  // namespace pushpull::man_page_test
