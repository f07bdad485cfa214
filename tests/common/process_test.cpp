#include "common/base/process.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/console.h"

namespace pushpull {
namespace {

TEST(AwakeClock, AdvancesWithTimeWhileItIsPolled) {
  AwakeClock clock;
  const int64_t begin = clock.advance(1'000'000);
  EXPECT_EQ(clock.advance(1'000'050) - begin, 50);
  EXPECT_EQ(clock.advance(1'000'050) - begin, 50);
  EXPECT_EQ(clock.advance(1'000'150) - begin, 150);
}

TEST(AwakeClock, StopsWhileTheProcessIsStopped) {
  AwakeClock clock;
  const int64_t begin = clock.advance(1'000'000);
  EXPECT_LE(clock.advance(1'060'000) - begin, 500) << "a minute of Ctrl-Z must not count";
  const int64_t awake = clock.advance(1'060'010);
  EXPECT_EQ(clock.advance(1'060'030) - awake, 20);
}

TEST(PeakRss, IsTheLargestSizeSoFar) {
  constexpr int64_t kMib = 64;
  const int64_t before = peak_rss_kib();
  EXPECT_GT(before, 0);
  { const std::vector<char> touched(kMib << 20, 'x'); }
  const int64_t after = peak_rss_kib();
  // at the moment of the peak, other pages may have been released
  EXPECT_GE(after, kMib * 1024 * 9 / 10);
  EXPECT_GE(after, before);
}

TEST(CpuSeconds, GrowWithWork) {
  const double before = cpu_seconds();
  volatile uint64_t work = 0;
  for (int i = 0; i < 20'000'000; ++i) work = work + static_cast<uint64_t>(i);
  EXPECT_GT(cpu_seconds(), before);
}

TEST(RaiseFileLimit, RaisesTheSoftLimitToTheHardLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  raise_file_limit();
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

// Returns the signals that a SignalFd reports in a process that starts with this action for SIGHUP
// and receives SIGHUP, then SIGTERM.
std::vector<int> signals_taken(void (*hangup)(int)) {
  int ends[2];
  if (pipe(ends) != 0) return {-1};
  const pid_t pid = fork();
  if (pid == 0) {
    std::signal(SIGHUP, hangup);
    SignalFd signals;
    raise(SIGHUP);
    raise(SIGTERM);
    for (int signal = signals.take(); signal != 0; signal = signals.take()) {
      [[maybe_unused]] const ssize_t written = write(ends[1], &signal, sizeof signal);
    }
    _exit(0);
  }
  close(ends[1]);
  std::vector<int> taken;
  for (int signal = 0; read(ends[0], &signal, sizeof signal) == sizeof signal;) {
    taken.push_back(signal);
  }
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  return taken;
}

TEST(SignalFd, LeavesAHangupIgnoredIfTheProgramWasStartedThatWay) {
  EXPECT_EQ(signals_taken(SIG_IGN), std::vector<int>{SIGTERM}) << "nohup(1)";
  EXPECT_EQ(signals_taken(SIG_DFL), (std::vector<int>{SIGHUP, SIGTERM}));
}

TEST(SignalFd, SignalsForACheckpointEndNothing) {
  const auto child = [](bool any) {
    SignalFd signals(SIGWINCH);
    for (const int signal : {SIGUSR1, SIGUSR2, SIGWINCH, SIGTERM}) raise(signal);
    if (!any) _exit(signals.take() == SIGTERM && signals.take() == 0 ? 0 : 1);
    int taken = 0;
    for (int signal = signals.take_any(); signal != 0; signal = signals.take_any()) ++taken;
    _exit(taken == 4 ? 0 : 1);
  };
  for (const bool any : {false, true}) {
    const pid_t pid = fork();
    if (pid == 0) child(any);
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

TEST(ProgramFolder, IsThatOfTheExecutedFile) {
  EXPECT_EQ(program_folder_of("/usr/bin/pushpull"), "/usr/bin");
  EXPECT_EQ(program_folder(),
            std::filesystem::read_symlink("/proc/self/exe").parent_path().string());
}

TEST(ProgramFolder, IsThatOfTheLauncherIfAPackagesLoaderWasExecuted) {
  EXPECT_EQ(program_folder_of("/opt/p/lib/pushpull/loader/pushpull"), "/opt/p/bin");
}

TEST(Log, TextFromPeersIsOneLineWithoutTerminalControls) {
  testing::internal::CaptureStderr();
  Log("server 0").info("lost worker (\x1b[2Jnode\nserver 0: error: fake, pid 1) \xc3\xa4");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "server 0: lost worker (\\x1b[2Jnode\\x0aserver 0: error: fake, pid 1) \xc3\xa4\n");
}

TEST(Log, ASinkTakesLinesInPlaceOfTheStreams) {
  std::string lines;
  testing::internal::CaptureStderr();
  set_print_sink([&](int /*fd*/, std::string_view text) { lines += text; });
  Log("worker 2").warn("lost");
  set_print_sink({});
  EXPECT_EQ(lines, "worker 2: warning: lost\n");
  Log("worker 2").info("back");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "worker 2: back\n");
}

}  // namespace
}  // namespace pushpull
