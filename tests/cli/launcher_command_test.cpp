// Tests the launcher with a command of the user's own in the place of the workers.
#include <gmock/gmock.h>

#include "tests/cli/launcher_fixture.h"

namespace pushpull::launcher_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Announces the start of training once $dir/ready has as many lines as there are workers.
constexpr const char* kTrainsWith =
    "ready() { [ \"$(grep -c . \"$dir/ready\" 2>/dev/null)\" -ge $1 ]; }\n"
    "until ready $workers; do sleep 0.01; done; echo started >&3\n";

class LauncherCommandTest : public LauncherTest {
 protected:
  void SetUp() override {
    LauncherTest::SetUp();
    options_.worker_command = {(dir_ / "worker").string()};
  }
};

TEST_F(LauncherCommandTest, TheCommandGetsTheAddressAndNoFlags) {
  options_.supervisor.workers = 2;
  options_.worker_command.emplace_back("a b");
  setenv("PUSHPULL_JOIN", "tcp://of-another-job:1", 1);
  setenv("PUSHPULL_INSECURE", "1", 1);
  script("server", "workers=2\n" + std::string(kAnnounce) + kTrainsWith + "echo $#: $*");
  script("worker",
         "echo \"$#: $* at $PUSHPULL_JOIN insecure=$PUSHPULL_INSECURE\"; echo x >> \"$dir/ready\"\n"
         "sleep 0.3");
  EXPECT_EQ(run(), 0) << err();
  EXPECT_THAT(err(), AllOf(HasSubstr("worker 0 | 1: a b at tcp://127.0.0.1:1 insecure=\n"),
                           HasSubstr("worker 1 | 1: a b at tcp://127.0.0.1:1 insecure=\n")))
      << "equal lines of two workers are both shown";
  options_.insecure = true;
  std::filesystem::remove(dir_ / "ready");
  EXPECT_EQ(run(), 0) << err();
  EXPECT_THAT(err(), HasSubstr("worker 0 | 1: a b at tcp://127.0.0.1:1 insecure=1\n"));
  unsetenv("PUSHPULL_JOIN");
  unsetenv("PUSHPULL_INSECURE");
}

TEST_F(LauncherCommandTest, AProgramThatEndsWithoutJoiningEndsTheJob) {
  for (const OnWorkerLoss policy : {OnWorkerLoss::kAbort, OnWorkerLoss::kWait}) {
    options_.supervisor.on_worker_loss = policy;
    script("server", std::string(kAnnounce) + "exec sleep 100");
    script("worker", "exit 0");
    EXPECT_EQ(run(), 1);
    EXPECT_THAT(err(),
                ::testing::MatchesRegex(
                    "\\[run\\] worker 0 \\(pid [0-9]+\\) ended with exit code 0 before training "
                    "began; a worker must join the job and stay until its end; stopping the "
                    "others\n"));
    std::filesystem::remove(dir_ / "err");
  }
}

TEST_F(LauncherCommandTest, AProgramThatLeavesTheJobIsReplaced) {
  options_.supervisor.on_worker_loss = OnWorkerLoss::kWait;
  for (const char* order : {"told first", "ends first"}) {
    const bool told_first = std::string_view(order) == "told first";
    script("server", "workers=1\n" + std::string(kAnnounce) + kTrainsWith + R"sh(
first=$(cat "$dir/ready")
)sh" + (told_first ? "" : "while kill -0 $first 2>/dev/null; do sleep 0.01; done; sleep 0.2\n") +
                         R"sh(
echo "lost $first" >&3; touch "$dir/told"
until ready 2; do sleep 0.01; done)sh");
    script("worker", "echo $$ >> \"$dir/ready\"\n" +
                         std::string(told_first ? "until [ -e \"$dir/told\" ]; do sleep 0.01; done"
                                                : "sleep 0.1"));
    EXPECT_EQ(run(), 0) << order << err();
    EXPECT_THAT(err(), HasSubstr("ended with exit code 0; starting a replacement, 1 of at most 3"));
    for (const char* file : {"ready", "told", "err"}) std::filesystem::remove(dir_ / file);
  }
}

TEST_F(LauncherCommandTest, AProgramUnderAnotherOneIsKnownByItsGroup) {
  options_.supervisor.on_worker_loss = OnWorkerLoss::kWait;
  options_.supervisor.replacement.leave_ms = 50;
  options_.worker_command = {"sh", "-c", (dir_ / "worker").string() + "; exit"};
  script("server", "workers=1\n" + std::string(kAnnounce) + kTrainsWith + R"sh(
echo "lost $(cat "$dir/ready")" >&3
until ready 2; do sleep 0.01; done)sh");
  script("worker",
         std::string(kFirst) + "echo $$ >> \"$dir/ready\"; [ -z \"$first\" ] || sleep 100");
  EXPECT_EQ(run(), 0) << err();
  EXPECT_THAT(err(), HasSubstr("starting a replacement, 1 of at most 3"));
}

TEST_F(LauncherCommandTest, ATracebackIsShownWholeAlthoughTheProgramEndsAtOnce) {
  options_.supervisor.workers = 2;
  script("server", std::string(kAnnounce) + "exec sleep 100");
  script("worker", std::string(kFirst) +
                       "i=0; while [ $i -lt 300 ]; do echo \"  File train.py, line $i\" >&2; "
                       "i=$((i+1)); done; [ -n \"$first\" ] || sleep 100; exit 1");
  EXPECT_EQ(run(), 1);
  const std::string text = err();
  const std::string who = text.substr(text.find("[run] ") + 6, 8);  // "worker 0"
  for (int i = 0; i < 300; ++i) {
    EXPECT_THAT(text, HasSubstr(who + " |   File train.py, line " + std::to_string(i) + "\n"));
  }
}

TEST_F(LauncherCommandTest, ProcessesThatAWorkerLeavesBehindAreKilled) {
  const std::string leaves = "sleep 100 & echo $! >> \"$dir/pids\"; echo x >> \"$dir/ready\"\n";
  script("server", "workers=1\n" + std::string(kAnnounce) + kTrainsWith);
  script("worker", leaves + "sleep 0.2");
  EXPECT_EQ(run(), 0) << err();
  EXPECT_EQ(living(), "") << "after a good end";
  script("server", std::string(kAnnounce) + "exec sleep 100");
  script("worker", leaves + "exit 3");
  EXPECT_EQ(run(), 3);
  EXPECT_EQ(living(), "") << "after a failure";
  script("worker", leaves + "trap '' TERM; while true; do sleep 1; done");
  options_.supervisor.grace_ms = 200;
  options_.supervisor.stop_ms = 200;
  start();
  ASSERT_TRUE(has_lines("ready", 3));
  kill(launcher_, SIGTERM);
  EXPECT_EQ(wait_for_end(), 143);
  EXPECT_EQ(living(), "") << "after SIGTERM, which the worker ignores";
}

TEST_F(LauncherCommandTest, ProcessesOfWorkersEndWithAKilledLauncher) {
  options_.supervisor.workers = 2;
  options_.supervisor.stop_ms = 500;  // for the worker that does not end by itself
  script("server", std::string(kAnnounce) + "exec sleep 100");
  script("worker", std::string(kFirst) +
                       "sleep 100 & echo $! >> \"$dir/pids\"; echo x >> \"$dir/ready\"\n"
                       "trap 'echo x >> \"$dir/signalled\"' TERM\n"
                       "[ -n \"$first\" ] && sleep 100; sleep 0.3");
  start();
  ASSERT_TRUE(has_lines("ready", 2));
  kill(launcher_, SIGKILL);
  waitpid(launcher_, nullptr, 0);
  launcher_ = -1;
  EXPECT_TRUE(eventually([&] { return living().empty(); })) << living();
  EXPECT_FALSE(std::filesystem::exists(dir_ / "signalled")) << "the job's end ends a worker";
}

TEST_F(LauncherCommandTest, AProgramMayWorkOnAfterTheJobForItsOwnTime) {
  options_.supervisor.grace_ms = 100;
  options_.supervisor.finish_ms = 60000;
  script("server", "workers=1\n" + std::string(kAnnounce) + kTrainsWith);
  script("worker", "echo x >> \"$dir/ready\"; sleep 1; echo saved");
  EXPECT_EQ(run(), 0) << err();
  EXPECT_THAT(err(), AllOf(HasSubstr("worker 0 | saved"), Not(HasSubstr("killed"))));
}

}  // namespace
}  // namespace pushpull::launcher_test
