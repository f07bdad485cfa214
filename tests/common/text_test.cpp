// Tests names and text: optimizers, schedules, strategies; suggestions; text that is safe to print.
#include "common/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/job/job.h"
#include "tests/common/job_test_support.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(OptionNames, ReadBackWhatTheyPrint) {
  for (const char* name : {"sgd", "momentum", "nesterov", "adam", "adamw"}) {
    EXPECT_EQ(to_string(parse_optimizer(name)), name);
  }
  for (const char* name : {"constant", "step", "cosine", "linear"}) {
    EXPECT_EQ(to_string(parse_schedule(name)), name);
  }
  for (const char* name : {"sync", "async", "buffered:2", "ssp:1", "ssp:1000000"}) {
    EXPECT_EQ(Strategy::parse(name).to_string(), name);
  }
}

TEST(OptionNames, UnknownNamesAreRefusedWithTheListOfKnownNames) {
  EXPECT_THAT(usage_error([] { parse_optimizer("lars"); }),
              AllOf(HasSubstr("'lars'"), HasSubstr("adamw, rmsprop, adagrad, lion or lamb")));
  EXPECT_THAT(
      usage_error([] { parse_schedule("exponential"); }),
      AllOf(HasSubstr("'exponential'"), HasSubstr("constant, step, cosine, linear, multistep")));
  EXPECT_THAT(usage_error([] { Strategy::parse("ssp:x"); }),
              AllOf(HasSubstr("'ssp:x'"), HasSubstr("sync, async, buffered:K (K from 1), ssp:S")));
}

TEST(Strategy, SspWithABoundOfZeroIsSync) { EXPECT_EQ(Strategy::parse("ssp:0"), Strategy{}); }

TEST(Strategy, ABufferOfOnePushIsAsync) {
  EXPECT_EQ(Strategy::parse("buffered:1"), Strategy{.kind = StrategyKind::kAsync});
  EXPECT_EQ(Strategy::parse("buffered:3").buffer, 3);
}

TEST(Strategy, TextsListTheStrategiesWithAProperty) {
  EXPECT_EQ(strategies_with(&StrategyTraits::single_pushes), "async or ssp:S");
  EXPECT_EQ(strategies_with(&StrategyTraits::recordable), "async, buffered:K, ssp:S or backup:B");
  EXPECT_EQ(strategies_with(&StrategyTraits::outer_optimizer), "local:H");
}

TEST(NearestName, FindsTyposAbbreviationsAndWordsOfOtherTrainers) {
  const std::vector<std::string> names = {"lr", "lr-step", "optimizer", "global-batch", "model"};
  EXPECT_EQ(nearest_name("optimi", names), "optimizer");
  EXPECT_EQ(nearest_name("optimiser", names), "optimizer");
  EXPECT_EQ(nearest_name("Global_Batch", names), "global-batch");
  EXPECT_EQ(nearest_name("learning-rate", names), "lr");
  EXPECT_EQ(nearest_name("lrs", names), "lr");
  EXPECT_EQ(nearest_name("xyz", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name(std::string(1'000'000, 'm'), names), "");
  EXPECT_EQ(nearest_name("epoch", names), "");
  EXPECT_EQ(nearest_name("nproc_per_node", {"workers", "servers"}), "workers");
}

TEST(Text, PlainTextIsUtf8WithoutControlCharacters) {
  for (const char* text : {"", "a b", "M\xc3\xbcller", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    EXPECT_TRUE(is_plain_text(text)) << text;
  }
  // control character; lone continuation; truncated; overlong '/' twice; surrogate; above U+10FFFF
  for (const char* text : {"\n", "\x7f", "\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xff", "\xc2\x9b"}) {
    EXPECT_FALSE(is_plain_text(text)) << printable(text);
  }
}

TEST(Text, PrintableEscapesAndCuts) {
  EXPECT_EQ(printable("a\tb\xff"), "a\\x09b\\xff");
  EXPECT_EQ(printable("M\xc3\xbcller"), "M\xc3\xbcller");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m\xc2\xa0"),
            "\\xc2\\x9b31m\xc2\xa0")
      << "C1 controls";
  EXPECT_EQ(printable(std::string(81, 'a')), std::string(80, 'a') + "...");
}

TEST(Plural, OnlyOneIsInTheSingular) {
  EXPECT_EQ(plural(1, "server"), "1 server");
  EXPECT_EQ(plural(0, "server"), "0 servers");
  EXPECT_EQ(plural(2, "more line"), "2 more lines");
}

}  // namespace
}  // namespace pushpull
