#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "common/job/program_help.h"

namespace pushpull::help_text_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ProgramHelp run_like() {
  return {.name = "pushpull run",
          .summary = "trains",
          .usage = {"pushpull run --job FILE"},
          .options = {takes("FILE", {"job", "", "the job file"}),
                      {"workers", "1", "number of workers"},
                      {"insecure", "", "listen beyond this machine without keys", "", false}},
          .job_flags = JobFlags::kAccept};
}

TEST(HelpText, NamesEveryKeyItsDefaultAndItsVariable) {
  const std::string text = help_text(run_like());
  for (const KeyHelp& help : job_keys()) {
    // a long key has its text on the next line
    const std::string flag = "\n  --" + help.key + " " + value_name(help);
    EXPECT_THAT(text, AnyOf(HasSubstr(flag + " "), HasSubstr(flag + "\n")));
    EXPECT_THAT(text, HasSubstr(environment_name(help.key) + "]"));
    EXPECT_THAT(text, HasSubstr("\n" + help.group + ":\n"));
  }
  EXPECT_THAT(text, AllOf(HasSubstr("pushpull run: trains\n"), HasSubstr("--insecure  "),
                          HasSubstr("--job FILE  "), HasSubstr("--version"),
                          HasSubstr("number of workers [1]\n")));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100U) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
  EXPECT_THAT(help_text({.name = "x", .summary = "y", .usage = {}}), Not(HasSubstr("PUSHPULL_")));
}

TEST(HelpText, ListsTheCommandsOfAProgram) {
  const ProgramHelp program = {
      .name = "pushpull", .summary = "z", .usage = {}, .commands = {run_like()}};
  EXPECT_THAT(help_text(program), AllOf(HasSubstr("\n  run "), HasSubstr(" trains\n")));
}

TEST(HelpText, ReadsTheWordsOfAValue) {
  EXPECT_THAT(value_words(takes("a|b:", {"x", "", ""})), ElementsAre("a", "b:"));
  EXPECT_THAT(value_words(takes("a|b,...", {"x", "", ""})), ElementsAre("a", "b"));
  EXPECT_THAT(value_words(takes("FILE", {"x", "", ""})), IsEmpty());
  EXPECT_THAT(value_words({"x", "", ""}), IsEmpty());
}

}  // namespace
}  // namespace pushpull::help_text_test
