#include "common/job/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "tests/common/job_test_support.h"

namespace pushpull::command_line_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const std::vector<KeyHelp>& local_options() {
  static const std::vector<KeyHelp> options = {
      {"job", "", "the job file"},
      {"workers", "1", "number of workers"},
      {"insecure", "", "listen beyond this machine without keys", "", false}};
  return options;
}

CommandLine parse(std::vector<const char*> words, JobFlags job_flags = JobFlags::kAccept) {
  words.insert(words.begin(), "pushpull");
  return parse_command_line(static_cast<int>(words.size()), words.data(), local_options(),
                            job_flags);
}

std::string error_of(const std::vector<const char*>& words) {
  return usage_error([&] { parse(words); });
}

TEST(CommandLine, SplitsJobKeysOwnFlagsAndWords) {
  const CommandLine line = parse({"run", "--job", "a.ini", "--lr=0.5", "--workers", "3",
                                  "--insecure", "--global-batch", "8", "last"});
  EXPECT_THAT(line.positional, ElementsAre("run", "last"));
  EXPECT_THAT(line.keys, UnorderedElementsAre(Pair("lr", "0.5"), Pair("global-batch", "8")));
  EXPECT_THAT(line.local, UnorderedElementsAre(Pair("job", "a.ini"), Pair("workers", "3"),
                                               Pair("insecure", "true")));
  EXPECT_FALSE(line.help);
  EXPECT_FALSE(line.version);
}

TEST(CommandLine, IsEmptyWithoutArguments) {
  EXPECT_THAT(parse({}).keys, IsEmpty());
  EXPECT_THAT(parse_command_line(0, nullptr, {}).positional, IsEmpty());
}

TEST(CommandLine, KnowsHelpAndVersion) {
  EXPECT_TRUE(parse({"--help"}).help);
  EXPECT_TRUE(parse({"run", "-h"}).help);
  EXPECT_TRUE(parse({"--version"}).version);
}

TEST(CommandLine, ANegativeNumberIsAValueAndReachesTheRangeCheck) {
  for (const CommandLine& line : {parse({"--lr", "-1"}), parse({"--lr=-1"})}) {
    EXPECT_EQ(usage_error([&] { parse_job("", line.keys); }),
              "[job] lr = -1 (--lr): must be a number > 0");
  }
}

TEST(CommandLine, AnEmptyValueIsAValue) {
  for (const CommandLine& line : {parse({"--hidden", ""}), parse({"--hidden="})}) {
    EXPECT_THAT(line.keys, ElementsAre(Pair("hidden", "")));
  }
}

TEST(CommandLine, OfARepeatedFlagTheLastOneCounts) {
  const CommandLine line = parse({"--lr", "1", "--job", "1", "--lr", "2", "--job=2"});
  EXPECT_THAT(line.keys, ElementsAre(Pair("lr", "2")));
  EXPECT_EQ(line.local.at("job"), "2");
}

TEST(CommandLine, EqualSignsBelongToTheValue) {
  EXPECT_THAT(parse({"--data-dir=a=b="}).keys, ElementsAre(Pair("data-dir", "a=b=")));
}

TEST(CommandLine, AfterTwoDashesAllArgumentsAreWords) {
  EXPECT_THAT(parse({"run", "--", "--lr", "--=x"}).positional, ElementsAre("run", "--lr", "--=x"));
}

TEST(CommandLine, UnknownFlagsAreNamedAndNotGuessed) {
  EXPECT_EQ(error_of({"--optimi", "sgd"}),
            "[flags] unknown flag --optimi; did you mean --optimizer?");
  EXPECT_EQ(error_of({"--optimi=sgd"}), "[flags] unknown flag --optimi; did you mean --optimizer?");
  EXPECT_EQ(error_of({"--learning-rate", "1"}),
            "[flags] unknown flag --learning-rate; did you mean --lr?");
  EXPECT_EQ(error_of({"--worker", "1"}), "[flags] unknown flag --worker; did you mean --workers?");
  EXPECT_EQ(error_of({"--zebra"}), "[flags] unknown flag --zebra; --help lists all");
  EXPECT_THAT(error_of({"-x"}), HasSubstr("unknown flag -x"));
  EXPECT_THAT(error_of({"--=x"}), HasSubstr("unknown flag --"));
  EXPECT_THAT(error_of({"--(word)", "x"}), HasSubstr("unknown flag --(word)"));
  EXPECT_THAT(error_of({"--LR", "1"}), HasSubstr("did you mean --lr?"));
}

TEST(CommandLine, MissingSuperfluousAndDoubleValuesAreNamed) {
  EXPECT_THAT(error_of({"--lr"}), HasSubstr("--lr"));
  EXPECT_EQ(
      error_of({"--lr", "--optimizer", "sgd"}),
      "[flags] flag --lr needs a value before --optimizer; a value that begins with dashes is "
      "given as --lr=VALUE");
  EXPECT_EQ(parse({"--job=--x y"}).local.at("job"), "--x y") << "after = it is a value";
  EXPECT_THAT(error_of({"--insecure=yes"}), HasSubstr("--insecure"));
  EXPECT_THAT(error_of({"--insecure="}), HasSubstr("--insecure"));
}

TEST(CommandLine, AProgramWithoutAJobRefusesItsKeys) {
  EXPECT_THAT(usage_error([] {
                parse({"--lr", "1"}, JobFlags::kRefuse);
              }),
              HasSubstr("unknown flag --lr"));
  EXPECT_THAT(parse({"--workers", "1"}, JobFlags::kRefuse).local,
              ElementsAre(Pair("workers", "1")));
}

TEST(CommandLine, AnOwnFlagThatHidesAKeyIsAnInternalError) {
  const char* argv[] = {"x"};
  EXPECT_THROW(parse_command_line(1, argv, {{"lr", "", ""}}), Error);
}

TEST(CommandLine, AFormatOfTheHelpAsksForHelp) {
  const CommandLine line = parse({"--help-as", "man"});
  EXPECT_TRUE(line.help);
  EXPECT_EQ(line.help_as, "man");
  EXPECT_EQ(error_of({"--help-at", "man"}), "[flags] unknown flag --help-at; --help lists all");
}

}  // namespace
}  // namespace pushpull::command_line_test
