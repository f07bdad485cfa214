#include "cli/run/launcher.h"

#include <gmock/gmock.h>

#include "tests/cli/launcher_fixture.h"

namespace pushpull::launcher_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(LauncherTest, StartsEveryProcessAndMergesTheirOutput) {
  options_.supervisor.servers = 2;
  options_.supervisor.workers = 3;
  options_.coordinator_arguments = {"--job", "a b"};
  script("server", std::string(kAnnounce) + R"(
case "$1" in
  --join) echo "server joins $2" ;;
  *) echo "args: $*"; printf 'no end'; cat /dev/stdin >&2 ;;
esac)");
  script("worker", "echo worker joins $2; echo again >&2");
  EXPECT_EQ(run(), 0) << err();
  EXPECT_EQ(out(), "args: --job a b --announce-fd 3\nno end\n");
  EXPECT_THAT(err(), AllOf(HasSubstr("server 1 | server joins tcp://127.0.0.1:1\n"),
                           HasSubstr(" | worker joins tcp://127.0.0.1:1\n"), HasSubstr("worker "),
                           HasSubstr(" | again\n")));
  EXPECT_EQ(lines_of(err()), 3) << "the same line of three workers is shown once\n" << err();
}

TEST_F(LauncherTest, AProcessCanRunUnderACommandAndWithItsOwnArguments) {
  options_.supervisor.workers = 2;
  script("on", "host=$1; shift; HOST=$host; export HOST; exec \"$@\"");
  script("server", std::string(kAnnounce) + "echo on $HOST: $*");
  script("worker", "echo on $HOST: $*");
  for (const char* host : {"a", "b", "c"}) {
    options_.places.push_back({{(dir_ / "on").string(), host}, {"--of", host}});
  }
  EXPECT_EQ(run(), 0) << err();
  EXPECT_EQ(out(), "on a: --announce-fd 3 --of a\n");
  EXPECT_THAT(err(), AllOf(HasSubstr("worker 0 | on b: --join tcp://127.0.0.1:1 --of b\n"),
                           HasSubstr("worker 1 | on c: --join tcp://127.0.0.1:1 --of c\n")));
}

TEST_F(LauncherTest, AMistakeOfManyWorkersIsShownOnceAndEndsTheJobWithTheirCode) {
  options_.supervisor.workers = 6;
  script("server", std::string(kAnnounce) + "exec sleep 100");
  script("worker", "echo '[data] /d: no such folder' >&2; exit 3");
  EXPECT_EQ(run(), 3);
  const std::string text = err();
  EXPECT_THAT(text, HasSubstr(" | [data] /d: no such folder\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\\[run\\] worker [0-5] \\(pid [0-9]+\\) ended with "
                                             "exit code 3 \\(data\\); stopping the others"));
  EXPECT_EQ(lines_of(text), 2) << text;
}

TEST_F(LauncherTest, TheCauseIsNamedAlthoughItsVictimsEndedFirst) {
  options_.supervisor.workers = 3;
  options_.supervisor.settle_ms = 20000;
  script("server", std::string(kAnnounce) +
                       "while [ ! -e \"$dir/first\" ]; do sleep 0.01; done; sleep 0.3; exit 5");
  script("worker", std::string(kFirst) + R"(
if [ -n "$first" ]; then sleep 0.6; echo 'loss is nan' >&2; exit 7; fi
echo "$$ lost the server" >&2; exit 5)");
  EXPECT_EQ(run(), 7);
  EXPECT_THAT(err(), AllOf(HasSubstr("| loss is nan"), HasSubstr("exit code 7 (not finite)"),
                           Not(HasSubstr("[run] server"))));
}

TEST_F(LauncherTest, TheProcessNamedByTheCoordinatorIsTheCause) {
  options_.supervisor.workers = 2;
  options_.supervisor.settle_ms = 20000;
  script("server", std::string(kAnnounce) + R"sh(
echo "failed $$ 9 [device] cuda:0 is lost" >&3
touch "$dir/told"
while [ "$(wc -l < "$dir/ended" 2> /dev/null)" != 2 ]; do sleep 0.01; done
exit 9)sh");
  script("worker",
         "while [ ! -e \"$dir/told\" ]; do sleep 0.01; done; echo >> \"$dir/ended\"; exit 9");
  EXPECT_EQ(run(), 9);
  EXPECT_THAT(err(),
              ::testing::ContainsRegex("\\[run\\] server 0 \\(pid [0-9]+\\) ended with exit "
                                       "code 9 \\(resource\\): \\[device\\] cuda:0 is lost\n$"));
}

TEST_F(LauncherTest, ACoordinatorThatIsKilledAfterItsReportOfTheEndHasDoneItsWork) {
  options_.supervisor.on_server_loss = OnServerLoss::kRestart;
  script("server", std::string(kAnnounce) + "echo 'ended 0' >&3; kill -9 $$");
  script("worker", "exit 0");
  EXPECT_EQ(run(), 0) << err();
  EXPECT_EQ(err(), "");
}

TEST_F(LauncherTest, AProcessThatTheCoordinatorHasGivenUpIsKilledAndReplaced) {
  options_.supervisor.on_server_loss = OnServerLoss::kRestart;
  options_.supervisor.servers = 2;
  options_.supervisor.replacement.leave_ms = 50;
  script("server", std::string(R"(case "$1" in
  --join) [ -e "$dir/first" ] && exit 0; echo $$ > "$dir/new"; mv "$dir/new" "$dir/first"; kill -STOP $$ ;;
esac
)") + kAnnounce + R"sh(
while [ ! -e "$dir/first" ]; do sleep 0.01; done
echo started >&3; echo "lost $(cat "$dir/first")" >&3
while kill -0 "$(cat "$dir/first")" 2> /dev/null; do sleep 0.01; done)sh");
  script("worker", "exit 0");
  EXPECT_EQ(run(), 0) << err();
  EXPECT_THAT(err(), AllOf(HasSubstr("is given up by the coordinator and has not ended; killed"),
                           HasSubstr("starting a replacement, 1 of at most 3")));
}

TEST_F(LauncherTest, ADeadWorkerIsNamedWithItsSignal) {
  options_.supervisor.workers = 2;
  script("server", std::string(kAnnounce) + "exec sleep 100");
  script("worker", std::string(kFirst) + "[ -z \"$first\" ] || kill -9 $$; exec sleep 100");
  EXPECT_EQ(run(), 137);
  EXPECT_THAT(err(), HasSubstr("was killed by signal 9 (SIGKILL); stopping the others"));
}

TEST_F(LauncherTest, ASignalReachesOnlyTheCoordinator) {
  options_.supervisor.servers = 2;
  options_.supervisor.workers = 2;
  const std::string wait_for_signal =
      "trap 'echo x >> \"$dir/caught\"; touch \"$dir/over\"' INT; echo x >> \"$dir/ready\"\n"
      "while [ ! -e \"$dir/over\" ]; do sleep 0.01; done; exit 75";
  script("server", kAnnounce + wait_for_signal);
  script("worker", wait_for_signal);
  start();
  ASSERT_TRUE(has_lines("ready", 4));
  kill(launcher_, SIGINT);
  EXPECT_EQ(wait_for_end(), 75);
  EXPECT_EQ(lines_of(read_file(dir_ / "caught")), 1);
  EXPECT_EQ(err(), "[run] SIGINT: stopping the job; once more kills it\n");
}

TEST_F(LauncherTest, ACheckpointSignalReachesOnlyTheCoordinatorAndEndsNothing) {
  options_.supervisor.workers = 2;
  script("server", std::string(kAnnounce) + R"(
trap 'echo x >> "$dir/caught"' USR1; trap 'exit 75' TERM; echo x >> "$dir/ready"
while :; do sleep 0.01; done)");
  script("worker",
         "echo x >> \"$dir/ready\"\nwhile [ ! -e \"$dir/over\" ]; do sleep 0.01; done; exit 75");
  start();
  ASSERT_TRUE(has_lines("ready", 3));
  kill(launcher_, SIGUSR2);
  kill(launcher_, SIGUSR1);
  ASSERT_TRUE(has_lines("caught", 1));
  kill(launcher_, SIGUSR1);
  ASSERT_TRUE(has_lines("caught", 2));
  std::ofstream(dir_ / "over") << "x";
  kill(launcher_, SIGTERM);
  EXPECT_EQ(wait_for_end(), 75);
  EXPECT_THAT(err(), AllOf(HasSubstr("[run] ignored SIGUSR2: it is not checkpoint-signal\n"),
                           HasSubstr("[run] SIGTERM: stopping the job\n"),
                           Not(HasSubstr("[run] worker")), Not(HasSubstr("[run] server"))));
}

TEST_F(LauncherTest, ACheckpointSignalWaitsForACoordinatorThatCanTakeIt) {
  script("server", "echo x >> \"$dir/ready\"; while [ ! -e \"$dir/go\" ]; do sleep 0.01; done\n" +
                       std::string(kAnnounce) + "exit 0");
  script("worker", "exit 0");
  start();
  ASSERT_TRUE(has_lines("ready", 1));
  kill(launcher_, SIGUSR1);  // would kill the server
  ASSERT_TRUE(has_lines("err", 1));
  std::ofstream(dir_ / "go") << "x";
  EXPECT_EQ(wait_for_end(), 0) << err();
  EXPECT_EQ(err(), "[run] ignored SIGUSR1: server 0 does not run yet\n");
}

TEST_F(LauncherTest, ASecondInterruptKillsProcessesThatIgnoreTheFirst) {
  const std::string deaf = "trap '' INT TERM; echo x >> \"$dir/ready\"; exec sleep 100";
  script("server", kAnnounce + deaf);
  script("worker", deaf);
  start();
  ASSERT_TRUE(has_lines("ready", 2));
  kill(launcher_, SIGINT);
  ASSERT_TRUE(has_lines("err", 1));
  usleep(400'000);  // an earlier one would count as the same signal
  kill(launcher_, SIGINT);
  EXPECT_EQ(wait_for_end(), 130);
  EXPECT_THAT(err(), HasSubstr("[run] SIGINT again: killing what still runs"));
}

TEST_F(LauncherTest, ProcessesThatDoNotEndInTimeAreKilled) {
  options_.supervisor.stop_ms = 500;
  options_.supervisor.grace_ms = 2000;
  const std::string deaf = "trap '' TERM; echo x >> \"$dir/ready\"; exec sleep 100";
  script("server", kAnnounce + deaf);
  script("worker", "echo x >> \"$dir/ready\"; kill -STOP $$; exec sleep 100");
  start();
  ASSERT_TRUE(has_lines("ready", 2));
  kill(launcher_, SIGTERM);
  EXPECT_EQ(wait_for_end(), 143);
  EXPECT_THAT(err(), AllOf(HasSubstr("[run] server 0 (pid "), HasSubstr("did not end within"),
                           Not(HasSubstr("[run] worker"))))
      << "a stopped worker is continued and ends itself";
}

TEST_F(LauncherTest, ProcessesEndWithAKilledLauncher) {
  options_.supervisor.servers = 2;
  options_.supervisor.workers = 2;
  const std::string wait_for_ever = "echo x >> \"$dir/ready\"; exec sleep 100";
  script("server", kAnnounce + wait_for_ever);
  script("worker", wait_for_ever);
  start();
  ASSERT_TRUE(has_lines("ready", 4));
  kill(launcher_, SIGKILL);
  waitpid(launcher_, nullptr, 0);
  launcher_ = -1;
  EXPECT_TRUE(eventually([&] { return living().empty(); })) << living();
}

TEST_F(LauncherTest, AKilledWorkerIsReplacedIfTheJobWaitsForOne) {
  options_.supervisor.workers = 2;
  options_.supervisor.on_worker_loss = OnWorkerLoss::kWait;
  script("server",
         std::string(kAnnounce) +
             "while [ \"$(grep -c . \"$dir/done\" 2>/dev/null)\" != 2 ]; do sleep 0.01; done");
  script("worker",
         std::string(kFirst) + "[ -z \"$first\" ] || kill -9 $$; echo x >> \"$dir/done\"");
  EXPECT_EQ(run(), 0) << err();
  EXPECT_THAT(err(), HasSubstr("starting a replacement, 1 of at most 3"));
}

TEST_F(LauncherTest, NoProcessStartsAfterACoordinatorThatFailsAtOnce) {
  script("server", "echo '[listen] port 1 is taken' >&2; exit 2");
  script("worker", "echo x >> \"$dir/started\"");
  EXPECT_EQ(run(), 2);
  EXPECT_THAT(err(), AllOf(HasSubstr("[listen] port 1 is taken\n[run] server 0 (pid "),
                           HasSubstr("ended with exit code 2 (usage)\n")));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "started"));
}

TEST_F(LauncherTest, TheWaitForACoordinatorThatNeverListensEnds) {
  options_.announce_timeout_ms = 200;
  script("server", "exec sleep 100");
  script("worker", "");
  EXPECT_EQ(run(), 4);
  EXPECT_THAT(err(), HasSubstr("[run] the coordinator did not listen within"));
}

TEST_F(LauncherTest, AMissingProgramIsNamedAndStopsTheJob) {
  script("server", std::string(kAnnounce) + "exec sleep 100");
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err(), HasSubstr("[run] cannot start " + options_.worker_program +
                               ": No such file or directory"));
  std::filesystem::remove(dir_ / "server");
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err(), HasSubstr("[run] cannot start " + options_.server_program));
}

TEST_F(LauncherTest, LongOutputArrivesWholeEvenFromAProcessThatEndsAtOnce) {
  script("server",
         std::string(kAnnounce) + "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done");
  script("worker", "");
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(lines_of(out()), 20000);
  EXPECT_THAT(out(), HasSubstr("\nline 19999\n"));
}

}  // namespace
}  // namespace pushpull::launcher_test
