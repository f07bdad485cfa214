#include "ps/run/stop_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr int64_t kNow = 1'700'000'000'000;  // 2023-11-14T22:13:20Z

CommandLine line_of(std::map<std::string, std::string> local) {
  CommandLine line;
  line.local = std::move(local);
  return line;
}

// An allocation that ends 100 s from now.
AllocationSource allocation() {
  AllocationSource source;
  source.variable = [](const std::string& name) -> std::optional<std::string> {
    if (name == "SLURM_JOB_END_TIME") return "1700000100";
    return std::nullopt;
  };
  source.now_utc_ms = kNow;
  return source;
}

StopOptions options_of(const std::map<std::string, std::string>& local) {
  const CommandLine line = line_of(local);
  return with_limit(stop_options(line), line, allocation(), [] { return false; });
}

std::string refusal(const std::map<std::string, std::string>& local) {
  return thrown(ErrorCode::kUsage, [&] { options_of(local); });
}

TEST(StopFlags, DefaultsAreThoseOfTheHelp) {
  const StopOptions options = options_of({});
  EXPECT_EQ(options.checkpoint_signal, SIGUSR1);
  EXPECT_EQ(options.grace_ms, 25'000);
  EXPECT_EQ(options.stop_at_utc_ms, StopOptions::kNever);
}

TEST(StopFlags, ASignalHasANameWithOrWithoutSigOrANumber) {
  for (const char* text : {"USR1", "SIGUSR1", "10"}) {
    EXPECT_EQ(parse_checkpoint_signal(text), SIGUSR1) << text;
  }
  EXPECT_EQ(parse_checkpoint_signal("SIGUSR2"), SIGUSR2);
  EXPECT_EQ(parse_checkpoint_signal("WINCH"), SIGWINCH);
  EXPECT_EQ(parse_checkpoint_signal(std::to_string(SIGRTMIN + 3)), SIGRTMIN + 3);
  EXPECT_EQ(parse_checkpoint_signal("none"), 0);
}

TEST(StopFlags, SignalsWithAnotherMeaningAreRefused) {
  for (const char* text : {"TERM", "SIGINT", "HUP", "KILL", "9", "STOP", "CHLD", "SEGV", "PIPE",
                           "ABRT", "CONT", "XFSZ", "TSTP"}) {
    EXPECT_THAT(refusal({{"checkpoint-signal", text}}), HasSubstr("has another meaning")) << text;
  }
  for (const char* text : {"", "usr1", "SIG", "SIGSIGUSR1", "0", "-10", "65", "1000", "USR3"}) {
    EXPECT_THAT(refusal({{"checkpoint-signal", text}}), HasSubstr("is no signal")) << text;
  }
}

TEST(StopFlags, GraceIsAtLeastASecond) {
  EXPECT_EQ(options_of({{"grace", "110.5"}}).grace_ms, 110'500);
  for (const char* text : {"0", "0.5", "-1", "x", ""}) {
    EXPECT_THAT(refusal({{"grace", text}}), HasSubstr("--grace")) << text;
  }
}

TEST(StopFlags, PartsOfTheGraceLeaveTimeForTheMembers) {
  EXPECT_EQ(cut_ms(25'000), 23'000);
  EXPECT_EQ(exit_ms(25'000), 24'000);
  EXPECT_EQ(cut_ms(5'000), 4'000);
  EXPECT_EQ(exit_ms(5'000), 4'500);
}

TEST(StopFlags, TheAllocationsEndIsTheLimit) {
  const StopOptions options = options_of({{"stop-before", "40"}});
  EXPECT_EQ(options.stop_at_utc_ms, kNow + 60'000);
  EXPECT_EQ(options.grace_of_limit_ms(), 40'000) << "it may last until the end";
  EXPECT_EQ(options.stop_reason, "the allocation ends at 2023-11-14T22:15:00Z, in 40 s");
  EXPECT_EQ(options_of({{"stop-before", "10"}}).grace_of_limit_ms(), 25'000);
  EXPECT_THAT(refusal({{"stop-before", "100"}}), HasSubstr("the allocation ends in 100 s"));
  EXPECT_THAT(refusal({{"stop-before", "0"}}), HasSubstr("--stop-before 0"));
  EXPECT_THAT(refusal({{"stop-before", "x"}}), HasSubstr("--stop-before x"));
}

TEST(StopFlags, ATimeIsInUtc) {
  EXPECT_EQ(parse_utc_ms("2023-11-14T22:13:20Z"), kNow);
  EXPECT_EQ(parse_utc_ms("2023-11-14T22:13Z"), kNow - 20'000);
  EXPECT_EQ(parse_utc_ms("1700000000"), kNow);
  EXPECT_EQ(parse_utc_ms("1970-01-01T00:00:00Z"), 0);
  for (const char* wrong :
       {"", "now", "2023-11-14", "2023-11-14T22:13:20", "2023-11-14T25:00:00Z",
        "2023-02-30T00:00:00Z", "2023-11-14T22:13:20Zx", "-5", "1e9", "99999999999999"}) {
    EXPECT_FALSE(parse_utc_ms(wrong)) << wrong;
  }
}

TEST(StopFlags, AnExplicitTimeNeedsNoAllocation) {
  const CommandLine line = line_of({{"stop-at", "1700000060"}});
  AllocationSource nothing;
  nothing.now_utc_ms = kNow;
  const StopOptions options = with_limit(stop_options(line), line, nothing, [] { return false; });
  EXPECT_EQ(options.stop_at_utc_ms, kNow + 60'000);
  EXPECT_EQ(options.grace_of_limit_ms(), 25'000);
  EXPECT_EQ(options.stop_reason, "--stop-at 2023-11-14T22:14:20Z has come");
  EXPECT_THAT(refusal({{"stop-at", "1700000000"}}), HasSubstr("this time has passed"));
  EXPECT_THAT(refusal({{"stop-at", "tomorrow"}}), HasSubstr("must be a time in UTC"));
  EXPECT_THAT(refusal({{"stop-at", "1700000060"}, {"stop-before", "5"}}),
              HasSubstr("give one of them"));
}

// Server 0 is started again while its job stops: the run ends in order.
TEST(StopFlags, ATimeThatHasPassedStopsAnUnfinishedRun) {
  const CommandLine line = line_of({{"stop-before", "100"}});
  const StopOptions options =
      with_limit(stop_options(line), line, allocation(), [] { return true; });
  EXPECT_EQ(options.stop_at_utc_ms, kNow);
}

}  // namespace
}  // namespace pushpull
