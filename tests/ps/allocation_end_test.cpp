#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/base/process.h"
#include "ps/run/stop_flags.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// An allocation of Slurm as a test describes it.
struct Slurm {
  std::map<std::string, std::string> variables;
  std::optional<std::string> answer;  // of squeue; nothing: squeue is not installed
  std::vector<std::string> asked;

  AllocationSource source() {
    AllocationSource out;
    out.variable = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    };
    out.run = [this](const std::vector<std::string>& words, std::string& why) {
      asked = words;
      if (!answer) why = "squeue: No such file or directory";
      return answer;
    };
    out.now_utc_ms = 1'700'000'000'000;
    return out;
  }
  std::string refusal() {
    return thrown(ErrorCode::kUsage, [&] { allocation_end(source()); });
  }
};

TEST(AllocationEnd, TimeLeftIsThatOfSlurm) {
  EXPECT_EQ(parse_time_left("0:10"), 10);
  EXPECT_EQ(parse_time_left("59:59"), 3599);
  EXPECT_EQ(parse_time_left("2:00:00"), 7200);
  EXPECT_EQ(parse_time_left("23:59:59"), 86'399);
  EXPECT_EQ(parse_time_left("1-00:00:00"), 86'400);
  EXPECT_EQ(parse_time_left("365-01:02:03"), 365 * 86'400 + 3723);
  for (const char* wrong : {"", "UNLIMITED", "INVALID", "NOT_SET", "10", "1-2:03", "1-", "-1:00",
                            "1:2:3:4", "1:-2", ":10", "10:", "1 0:10", "99999:00", "+1:00"}) {
    EXPECT_FALSE(parse_time_left(wrong)) << wrong;
  }
}

TEST(AllocationEnd, NewSlurmSaysItInAVariable) {
  Slurm slurm{{{"SLURM_JOB_END_TIME", "1700000100"}, {"SLURM_JOB_ID", "7"}}, {}, {}};
  EXPECT_EQ(allocation_end(slurm.source()), 1'700'000'100'000);
  EXPECT_TRUE(slurm.asked.empty());
  slurm.variables["SLURM_JOB_END_TIME"] = "soon";
  EXPECT_THAT(slurm.refusal(), HasSubstr("SLURM_JOB_END_TIME is 'soon'"));
}

TEST(AllocationEnd, OldSlurmIsAskedForTheTimeLeft) {
  Slurm slurm{{{"SLURM_JOB_ID", "7"}}, "  1:30:00\n", {}};
  EXPECT_EQ(allocation_end(slurm.source()), 1'700'000'000'000 + 5400 * 1000);
  EXPECT_THAT(slurm.asked, ElementsAre("squeue", "--noheader", "--format=%L", "--jobs=7"));
}

TEST(AllocationEnd, WithoutAnEndItIsRefusedWithTheReason) {
  Slurm none;
  EXPECT_THAT(none.refusal(), HasSubstr("no allocation of Slurm"));
  EXPECT_THAT(none.refusal(), HasSubstr("--stop-at"));
  Slurm slurm{{{"SLURM_JOB_ID", "7"}}, "UNLIMITED\n", {}};
  EXPECT_THAT(slurm.refusal(), HasSubstr("squeue says 'UNLIMITED'"));
  slurm.answer = "";
  EXPECT_THAT(slurm.refusal(), HasSubstr("squeue says ''"));
  slurm.answer.reset();
  EXPECT_THAT(slurm.refusal(), HasSubstr("job 7 is unknown: squeue: No such file"));
  slurm.variables["SLURM_JOB_ID"] = "7; rm";
  EXPECT_THAT(slurm.refusal(), HasSubstr("SLURM_JOB_ID is '7; rm'"));
}

TEST(ProgramOutput, IsWhatTheProgramPrints) {
  std::string why;
  EXPECT_EQ(output_of({"echo", "a b", "c"}, 20'000, why), "a b c\n");
  EXPECT_EQ(output_of({"sh", "-c", "echo x; exit 3"}, 20'000, why), std::nullopt);
  EXPECT_EQ(why, "sh has failed");
  EXPECT_EQ(output_of({"/no/such/program"}, 20'000, why), std::nullopt);
  EXPECT_THAT(why, HasSubstr("/no/such/program: No such file"));
}

TEST(ProgramOutput, AProgramThatHangsIsKilledAtTheDeadline) {
  std::string why;
  EXPECT_EQ(output_of({"sh", "-c", "exec >&-; sleep 1000"}, 50, why), std::nullopt)
      << "it has closed its output";
  EXPECT_EQ(output_of({"sleep", "1000"}, 50, why), std::nullopt);
  EXPECT_THAT(why, HasSubstr("sleep has not answered"));
}

TEST(ProgramOutput, TheProgramGetsSignalsThatThisProcessBlocks) {
  const SignalFd signals;
  std::string why;
  EXPECT_EQ(output_of({"sh", "-c", "kill -USR1 $$; echo alive"}, 20'000, why), std::nullopt);
}

}  // namespace
}  // namespace pushpull
