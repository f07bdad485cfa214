#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/host/resources.h"
#include "tests/common/host/fake_root.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;

constexpr int64_t kGib = int64_t{1} << 30;

TEST(Cgroup, AHostWithoutGroupsHasNoLimits) {
  const FakeRoot host;
  const GroupLimits limits = read_group_limits(host.root());
  EXPECT_EQ(limits.cpus, std::nullopt);
  EXPECT_FALSE(limits.memory);
  EXPECT_FALSE(limits.pids);
  EXPECT_THAT(limits.cpuset, IsEmpty());
}

TEST(Cgroup, VersionTwoSetsLimitsInOneFolder) {
  FakeRoot host;
  host.put("/proc/self/cgroup", "0::/job.slice/task\n")
      .put("/sys/fs/cgroup/job.slice/task/cpu.max", "150000 100000\n")
      .put("/sys/fs/cgroup/job.slice/task/memory.max", "17179869184\n")
      .put("/sys/fs/cgroup/job.slice/task/memory.current", "3221225472\n")
      .put("/sys/fs/cgroup/job.slice/task/pids.max", "4096\n")
      .put("/sys/fs/cgroup/job.slice/task/pids.current", "30\n")
      .put("/sys/fs/cgroup/job.slice/task/cpuset.cpus.effective", "8-11\n");
  const GroupLimits limits = read_group_limits(host.root());
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_THAT(limits.cpus_file, EndsWith("/sys/fs/cgroup/job.slice/task/cpu.max"));
  EXPECT_EQ(limits.memory->most, 16 * kGib);
  EXPECT_EQ(limits.memory->used, 3 * kGib);
  EXPECT_THAT(limits.memory->file, EndsWith("/task/memory.max"));
  EXPECT_EQ(limits.pids->most, 4096);
  EXPECT_EQ(limits.pids->used, 30);
  EXPECT_THAT(limits.cpuset, ElementsAre(8, 9, 10, 11));
}

TEST(Cgroup, TheStrictestOfTheGroupsAroundCounts) {
  FakeRoot host;
  host.put("/proc/self/cgroup", "0::/slurm/job_7/step_0\n")
      .put("/sys/fs/cgroup/slurm/job_7/step_0/cpu.max", "max 100000\n")
      .put("/sys/fs/cgroup/slurm/job_7/cpu.max", "400000 100000\n")
      .put("/sys/fs/cgroup/slurm/cpu.max", "200000 100000\n")
      .put("/sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n")
      .put("/sys/fs/cgroup/slurm/job_7/memory.max", "2147483648\n")
      .put("/sys/fs/cgroup/slurm/memory.max", "8589934592\n")
      .put("/sys/fs/cgroup/slurm/memory.current", "8000000000\n");
  const GroupLimits limits = read_group_limits(host.root());
  EXPECT_EQ(limits.cpus, 2.0);
  EXPECT_THAT(limits.memory->file, EndsWith("/slurm/memory.max")) << "least is left there";
}

TEST(Cgroup, VersionOneHasAFolderForEachController) {
  FakeRoot host;
  host.put(
          "/proc/self/cgroup",
          "9:pids:/job\n5:memory:/job/a\n3:cpuset:/\n2:cpu,cpuacct:/job\n1:name=systemd:/x\n0::/\n")
      .put("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "350000\n")
      .put("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n")
      .put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
      .put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
      .put("/sys/fs/cgroup/memory/job/a/memory.limit_in_bytes", "9223372036854771712\n")
      .put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n")
      .put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4096\n")
      .put("/sys/fs/cgroup/pids/job/pids.max", "max\n")
      .put("/sys/fs/cgroup/cpuset/cpuset.cpus", "0-7\n");
  const GroupLimits limits = read_group_limits(host.root());
  EXPECT_EQ(limits.cpus, 3.5);
  EXPECT_EQ(limits.memory->most, kGib);
  EXPECT_FALSE(limits.pids);
  EXPECT_EQ(limits.cpuset.size(), 8U);
}

// In a container without a namespace for groups, the path is the host's and the mount is the container's own group.
TEST(Cgroup, APathThatIsNotMountedMeansTheMountItself) {
  FakeRoot host;
  host.put("/proc/self/cgroup", "4:cpu:/docker/abc\n3:memory:/docker/abc\n")
      .put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n")
      .put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
      .put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
  const GroupLimits limits = read_group_limits(host.root());
  EXPECT_EQ(limits.cpus, 0.5);
  EXPECT_EQ(limits.memory->most, kGib / 2);
}

TEST(Cgroup, FilesInMemoryThatTheKernelDropsDoNotCountAsUsed) {
  FakeRoot host;
  host.put("/proc/self/cgroup", "0::/\n")
      .put("/sys/fs/cgroup/memory.max", "8589934592\n")
      .put("/sys/fs/cgroup/memory.current", "8589934592\n")
      .put("/sys/fs/cgroup/memory.stat", "anon 5\nfile 7516192768\ninactive_file 6442450944\n");
  EXPECT_EQ(read_group_limits(host.root()).memory->used, 2 * kGib);
}

TEST(Cgroup, AFileWithOtherTextSetsNoLimit) {
  FakeRoot host;
  host.put("/proc/self/cgroup", "garbage\n0::/a\n:::\n")
      .put("/sys/fs/cgroup/a/cpu.max", "100000 0\n")
      .put("/sys/fs/cgroup/cpu.max", "-5 100000\n")
      .put("/sys/fs/cgroup/a/memory.max", "many\n")
      .put("/sys/fs/cgroup/a/pids.max", "-3\n")
      .put("/sys/fs/cgroup/a/cpuset.cpus.effective", "0-\n");
  const GroupLimits limits = read_group_limits(host.root());
  EXPECT_EQ(limits.cpus, std::nullopt);
  EXPECT_FALSE(limits.memory);
  EXPECT_FALSE(limits.pids);
  EXPECT_THAT(limits.cpuset, IsEmpty());
}

}  // namespace
}  // namespace pushpull
