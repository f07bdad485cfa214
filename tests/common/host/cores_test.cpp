#include "common/host/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "common/base/error.h"
#include "tests/common/host/fake_root.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

Cores some_cores(int cpus, std::optional<double> quota = std::nullopt, int share = 0) {
  Cores cores;
  for (int cpu = 0; cpu < cpus; ++cpu) cores.cpus.push_back(cpu);
  cores.allowed = cores.cpus;
  cores.quota = quota;
  cores.share = share;
  return cores;
}

TEST(Cores, AreThoseOfTheAffinityWithoutAQuota) {
  EXPECT_EQ(some_cores(8).count(), 8);
  EXPECT_EQ(some_cores(8).given(), 8.0);
}

TEST(Cores, AQuotaLimitsThemToWholeOnes) {
  EXPECT_EQ(some_cores(8, 2.0).count(), 2);
  EXPECT_EQ(some_cores(8, 2.5).count(), 2) << "a third thread would be stopped half of the time";
  EXPECT_EQ(some_cores(8, 2.5).given(), 2.5);
  EXPECT_EQ(some_cores(8, 0.5).count(), 1) << "at least one";
  EXPECT_EQ(some_cores(8, 16.0).count(), 8);
}

TEST(Cores, AShareLimitsThreadsAndNotWhatCanBeUsed) {
  EXPECT_EQ(some_cores(8, std::nullopt, 3).count(), 3);
  EXPECT_EQ(some_cores(2, std::nullopt, 3).count(), 2);
  EXPECT_EQ(some_cores(8, std::nullopt, 3).given(), 8.0);
}

TEST(Cores, TheQuotaAndTheCpusetAreThoseOfTheGroups) {
  FakeRoot host;
  host.put("/proc/self/cgroup", "0::/\n")
      .put("/sys/fs/cgroup/cpu.max", "50000 100000\n")
      .put("/sys/fs/cgroup/cpuset.cpus.effective", "0-1023\n");
  const Cores cores = read_cores(host.root());
  EXPECT_EQ(cores.quota, 0.5);
  EXPECT_EQ(cores.count(), 1);
  EXPECT_EQ(cores.allowed.size(), 1024U);
  EXPECT_TRUE(cores.is_bound()) << "this machine has fewer";
}

TEST(Cores, WithoutACpusetAllOnlineCpusAreAllowed) {
  FakeRoot host;
  host.put("/sys/devices/system/cpu/online", "0-2\n");
  EXPECT_EQ(read_cores(host.root()).allowed.size(), 3U);
  const FakeRoot silent;
  EXPECT_FALSE(read_cores(silent.root()).is_bound()) << "nothing says that there are more";
}

TEST(Cores, TheLauncherMayNameTheShare) {
  for (const auto& [text, share] : std::initializer_list<std::pair<const char*, int>>{
           {"1", 1}, {"", 0}, {"0", 0}, {"-2", 0}, {"two", 0}, {"99999999", 0}}) {
    setenv("PUSHPULL_CORES", text, 1);
    EXPECT_EQ(read_cores().share, share) << text;
  }
  unsetenv("PUSHPULL_CORES");
}

TEST(Cores, AThreadThatIsBoundHasOnlyThoseCpus) {
  std::thread([] {
    const std::vector<int> first = {read_cores().cpus.front()};
    bind_to(first);
    EXPECT_EQ(read_cores().cpus, first);
    std::thread([&] { EXPECT_EQ(read_cores().cpus, first) << "and its threads"; }).join();
  }).join();
  EXPECT_THROW(bind_to({60000}), Error);
}

TEST(Cores, ThreadsForUpdatesAreOnePerCoreAndAtMostSixteen) {
  EXPECT_EQ(useful_threads(3), 3);
  EXPECT_EQ(useful_threads(0), std::min(16, own_cores().count()));
}

TEST(Cores, MoreThreadsThanCoresIsSaidWithBothNumbers) {
  EXPECT_EQ(more_threads_text(2, 4, some_cores(8)), "");
  EXPECT_EQ(more_threads_text(8, 1, some_cores(8)), "");
  EXPECT_THAT(more_threads_text(4, 4, some_cores(8)),
              HasSubstr("4 workers with 4 compute threads each, 8 cores (CPUs 0-7)"));
  EXPECT_THAT(more_threads_text(3, 1, some_cores(2)), HasSubstr("3 workers, 2 cores (CPUs 0-1)"));
  EXPECT_THAT(more_threads_text(2, 1, some_cores(8, 1.5)),
              HasSubstr("2 workers, 1 core (CPUs 0-7, quota 1.5)"));
}

}  // namespace
}  // namespace pushpull
