#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/status/top_view.h"

namespace pushpull {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

ordered_json answer_of(int64_t pid, const std::string& run, const std::string& phase = "training") {
  return {{"host", "node1"}, {"pid", pid}, {"run", run}, {"phase", phase}};
}

TEST(TopJob, AsksAgainAnIntervalAfterTheAnswer) {
  TopJob job(1000);
  EXPECT_TRUE(job.ask(100));
  EXPECT_FALSE(job.ask(150)) << "one question at a time";
  job.answered(300, answer_of(7, "a"));
  EXPECT_FALSE(job.ask(1299));
  EXPECT_TRUE(job.ask(1300));
}

TEST(TopJob, AQuestionThatIsNotAnsweredIsGivenUpAndRepeatedOnANewConnection) {
  TopJob job(1000);
  EXPECT_FALSE(job.give_up(0)) << "nothing is pending";
  EXPECT_TRUE(job.ask(0));
  EXPECT_FALSE(job.give_up(4999));
  EXPECT_TRUE(job.give_up(5000));
  EXPECT_TRUE(job.ask(5000));
}

TEST(TopJob, BeforeTheFirstAnswerItSaysThatThereIsNoCoordinatorYet) {
  TopJob job(1000);
  job.ask(0);
  EXPECT_EQ(job.trouble(2999), "");
  EXPECT_THAT(job.trouble(3000), HasSubstr("no answer for 0:03: no coordinator there yet"));
}

TEST(TopJob, ACoordinatorThatFallsSilentIsSaidToBeGone) {
  TopJob job(1000);
  job.ask(0);
  job.answered(10, answer_of(7, "a"));
  job.ask(1010);
  EXPECT_EQ(job.trouble(3900), "");
  EXPECT_THAT(job.trouble(65'010), HasSubstr("no answer for 1:05: the coordinator is gone"));
  EXPECT_EQ(job.document()->at("pid"), 7) << "the newest answer stays";
}

TEST(TopJob, ALongIntervalIsNoSilence) {
  TopJob job(60'000);
  job.ask(0);
  job.answered(10, answer_of(7, "a"));
  EXPECT_EQ(job.trouble(60'000), "");
  job.ask(60'010);
  EXPECT_THAT(job.trouble(64'000), HasSubstr("no answer"));
}

TEST(TopJob, AfterAJobsEndItsSilenceIsNoLoss) {
  for (const char* phase : {"finishing", "finished", "failed"}) {
    TopJob job(1000);
    job.ask(0);
    job.answered(10, answer_of(7, "a", phase));
    EXPECT_THAT(job.trouble(20'000), HasSubstr("the job has ended")) << phase;
  }
}

TEST(TopJob, ACoordinatorThatIsBackIsNamedForAWhile) {
  TopJob job(1000);
  job.ask(0);
  job.answered(10, answer_of(7, "a"));
  job.ask(2000);
  job.answered(40'000, answer_of(9, "b"));
  EXPECT_THAT(job.trouble(40'001), HasSubstr("restarted: now node1, pid 9, before node1, pid 7"));
  EXPECT_NE(job.trouble(41'500), "");
  job.ask(69'000);
  job.answered(69'100, answer_of(9, "b"));
  EXPECT_EQ(job.trouble(70'001), "");
}

TEST(TopJob, ALostServerIsSaidByTheNewRun) {
  TopJob job(1000);
  job.ask(0);
  job.answered(10, answer_of(7, "a"));
  job.ask(2000);
  job.answered(2010, answer_of(7, "b"));
  EXPECT_THAT(job.trouble(2011), HasSubstr("gone back to a checkpoint, as run b"));
}

TEST(TopJob, AFailureIsShownUntilAnAnswerArrives) {
  TopJob job(1000);
  job.ask(0);
  job.answered(10, answer_of(7, "a"));
  job.ask(1010);
  job.failed(1020, "[key] refused");
  EXPECT_THAT(job.trouble(1030), HasSubstr("[key] refused; asking again"));
  EXPECT_TRUE(job.ask(2020));
  job.answered(2030, answer_of(7, "a"));
  EXPECT_EQ(job.trouble(2040), "");
}

}  // namespace
}  // namespace pushpull
