// Tests the findings of `pushpull doctor` without a job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/commands.h"
#include "cli/doctor/checks.h"
#include "tests/common/host/fake_root.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kGib = int64_t{1} << 30;

HostFacts good_facts() {
  HostFacts facts;
  facts.host = "node1";
  facts.cores.cpus = {0, 1, 2, 3};
  facts.cores.allowed = facts.cores.cpus;
  facts.memory_bytes = 64 * kGib;
  facts.available_bytes = 60 * kGib;
  facts.shm_bytes = 32 * kGib;
  facts.shm_free_bytes = 32 * kGib;
  facts.files = {1024, 1048576};
  facts.processes = {INT64_MAX, INT64_MAX};
  facts.locked = {8 << 20, 8 << 20};
  facts.gpus.library_error = "libcuda.so.1: cannot open shared object file";
  return facts;
}

std::vector<std::string> warnings_of(const HostFacts& facts) {
  std::vector<std::string> out;
  for (const Finding& one : check_facts(facts)) {
    EXPECT_NE(one.level, Finding::kError) << one.text;
    if (one.level == Finding::kWarning) out.push_back(one.check);
  }
  return out;
}

TEST(HostDoctor, AnOrdinaryHostHasNoWarnings) {
  EXPECT_THAT(warnings_of(good_facts()), ElementsAre());
  EXPECT_THAT(check_gpus(good_facts().gpus).text, HasSubstr("none: no NVIDIA driver"));
}

TEST(HostDoctor, AHomeWithoutAPlaceForAKeyIsAWarning) {
  HostFacts facts = good_facts();
  facts.no_user_key = "/home/anna/.config cannot be written: Permission denied";
  EXPECT_THAT(warnings_of(facts), ElementsAre("key"));
  EXPECT_THAT(check_user_key(facts).text,
              AllOf(HasSubstr("/home/anna/.config"), HasSubstr("HOME")));
}

TEST(HostDoctor, AQuotaBelowTheAffinityIsAWarningWithTheFile) {
  HostFacts facts = good_facts();
  facts.cores.quota = facts.groups.cpus = 1.5;
  facts.groups.cpus_file = "/sys/fs/cgroup/cpu.max";
  EXPECT_THAT(warnings_of(facts), ElementsAre("cores"));
  EXPECT_THAT(check_cores(facts).text,
              AllOf(HasSubstr("4 CPUs (0-3), but /sys/fs/cgroup/cpu.max allows the time of 1.5"),
                    HasSubstr("at most 1 compute thread"), HasSubstr("--cpus")));
  facts.cores.quota = 4.0;
  EXPECT_THAT(warnings_of(facts), ElementsAre());
}

TEST(HostDoctor, ABoundTaskSeesBothNumbers) {
  HostFacts facts = good_facts();
  facts.cores.cpus = {2, 3};
  facts.numa_nodes = 2;
  EXPECT_THAT(check_cores(facts).text,
              AllOf(HasSubstr("2 CPUs (2-3) of 0-3, by the launcher or taskset"),
                    HasSubstr("2 NUMA nodes")));
}

TEST(HostDoctor, LittleMemoryIsAWarningWithinAGroupToo) {
  HostFacts facts = good_facts();
  facts.groups.memory = GroupLimit{4 * kGib, kGib, "/sys/fs/cgroup/memory.max"};
  EXPECT_EQ(free_memory(facts), 3 * kGib);
  EXPECT_THAT(warnings_of(facts), ElementsAre());
  facts.groups.memory->used = 4 * kGib - 1000;
  EXPECT_THAT(warnings_of(facts), ElementsAre("memory"));
  EXPECT_THAT(check_memory(facts).text,
              AllOf(HasSubstr("/sys/fs/cgroup/memory.max allows 4.3 GB"), HasSubstr("--mem")));
}

TEST(HostDoctor, FewProcessesFilesAndLittleSharedMemoryAreWarnings) {
  HostFacts facts = good_facts();
  facts.groups.pids = GroupLimit{100, 40, "/sys/fs/cgroup/pids.max"};
  facts.files = {128, 128};
  facts.shm_free_bytes = 64 << 20;
  EXPECT_THAT(warnings_of(facts), ElementsAre("processes", "/dev/shm", "files"));
  EXPECT_THAT(check_open_files(facts.files).text, HasSubstr("servers with 4 workers"));
}

TEST(HostDoctor, LockedMemoryMattersWithInfinibandOnly) {
  HostFacts facts = good_facts();
  facts.infiniband = true;
  EXPECT_THAT(warnings_of(facts), ElementsAre("memlock"));
  facts.locked.soft = INT64_MAX;
  EXPECT_THAT(warnings_of(facts), ElementsAre());
}

GpuFacts four_gpus() {
  GpuFacts gpus;
  gpus.driver = "535.129.03";
  gpus.names.assign(4, "NVIDIA A100-SXM4-40GB");
  gpus.has_library = true;
  gpus.cuda_version = 12020;
  gpus.built_with_cuda = true;
  return gpus;
}

TEST(HostDoctor, GpusAreNamedWithDriverAndCuda) {
  const Finding found = check_gpus(four_gpus());
  EXPECT_EQ(found.level, Finding::kOk);
  EXPECT_EQ(found.text, "driver 535.129.03 for CUDA 12.2, 4 x NVIDIA A100-SXM4-40GB");
}

TEST(HostDoctor, GpusThatCannotBeUsedAreAWarningWithTheRemedy) {
  GpuFacts gpus = four_gpus();
  gpus.library_error = "libcuda.so.1: cannot open";
  EXPECT_THAT(check_gpus(gpus).text, AllOf(HasSubstr("libcuda.so.1"), HasSubstr("--nv")));
  gpus = four_gpus();
  gpus.names.clear();
  EXPECT_THAT(check_gpus(gpus).text, HasSubstr("--gpus"));
  gpus = four_gpus();
  gpus.visible = "";
  EXPECT_THAT(check_gpus(gpus).text, HasSubstr("hides all GPUs"));
  gpus = four_gpus();
  gpus.built_with_cuda = false;
  EXPECT_THAT(check_gpus(gpus).text, HasSubstr("no CUDA in it"));
  gpus = {};
  gpus.has_library = true;
  gpus.library_error = "it does not tell its version";
  EXPECT_THAT(check_gpus(gpus).text, HasSubstr("it does not tell its version"));
  gpus = {};
  gpus.timed_out = true;
  EXPECT_THAT(check_gpus(gpus).text, HasSubstr("not answered within 5 s"));
}

TEST(HostDoctor, TheDriversFilesAreRead) {
  FakeRoot host;
  const std::string nvidia = "/proc/driver/nvidia/";
  host.put(nvidia + "version",
           "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC "
           "2023\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n")
      .put(nvidia + "gpus/0000:81:00.0/information", "Model: \t\t NVIDIA H100\nIRQ:   \t\t 17\n")
      .put(nvidia + "gpus/0000:01:00.0/information", "Model: \t\t NVIDIA A100-SXM4-40GB\n");
  const GpuFacts gpus = read_gpu_facts(host.root());
  EXPECT_EQ(gpus.driver, "535.129.03");
  EXPECT_THAT(gpus.names, ElementsAre("NVIDIA A100-SXM4-40GB", "NVIDIA H100"));
  host.put(nvidia + "version",
           "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build\n");
  EXPECT_EQ(read_gpu_facts(host.root()).driver, "560.35.03");
  const FakeRoot none;
  EXPECT_EQ(read_gpu_facts(none.root()).driver, "");
}

TEST(HostDoctor, TheFactsOfAFakeHostAreRead) {
  FakeRoot host;
  host.put("/proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\nMemAvailable: 524288 kB\n")
      .put("/proc/self/cgroup", "0::/\n")
      .put("/sys/fs/cgroup/memory.max", "268435456\n")
      .put("/sys/class/infiniband/mlx5_0/x", "");
  const HostFacts facts = read_host_facts(host.root());
  EXPECT_EQ(facts.memory_bytes, kGib);
  EXPECT_EQ(facts.available_bytes, kGib / 2);
  EXPECT_EQ(free_memory(facts), kGib / 4);
  EXPECT_TRUE(facts.infiniband);
  EXPECT_GT(facts.files.hard, 0);
}

TEST(HostDoctor, AHostIsARowBelowTheTitles) {
  HostFacts facts = good_facts();
  const size_t column = host_titles().find("memory free");
  EXPECT_EQ(host_row(facts).find("64 GB"), column);
  facts.gpus = four_gpus();
  facts.cores.quota = facts.groups.cpus = 2.0;
  facts.groups.cpus_file = "/sys/fs/cgroup/cpu.max";
  const std::string lines = host_lines(facts);
  EXPECT_THAT(lines, StartsWith("node1 "));
  EXPECT_THAT(lines, AllOf(HasSubstr("4, quota 2"), HasSubstr("4 x NVIDIA A100-SXM4-40GB, driver"),
                           HasSubstr("\nnode1  warning  cores: 4 CPUs (0-3), but")));
}

TEST(HostDoctor, TheLauncherIsNamed) {
  EXPECT_THAT(check_launcher({}, "n").finding.text, StartsWith("none"));
  const TaskFinding slurm = check_launcher({{"SLURM_JOB_ID", "7"},
                                            {"SLURM_STEP_ID", "0"},
                                            {"SLURM_PROCID", "3"},
                                            {"SLURM_NTASKS", "4"},
                                            {"SLURM_LOCALID", "1"},
                                            {"SLURM_STEP_NODELIST", "n[0-1]"}},
                                           "n1");
  EXPECT_EQ(slurm.tasks, 4);
  EXPECT_EQ(slurm.rank, 3);
  EXPECT_EQ(slurm.local_rank, 1);
  EXPECT_THAT(slurm.finding.text, AllOf(HasSubstr("Slurm, rank 3 of 4"), HasSubstr("tcp://n0:")));
}

TEST(HostDoctor, ATaskThatIsInNoStepIsAWarning) {
  const TaskFinding batch =
      check_launcher({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, "n1");
  EXPECT_EQ(batch.tasks, 1);
  EXPECT_EQ(batch.finding.level, Finding::kWarning);
  EXPECT_THAT(batch.finding.text, HasSubstr("srun"));
}

TEST(HostDoctor, TasksWithoutAnAddressAreStillCounted) {
  const TaskFinding mpi =
      check_launcher({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, "n1");
  EXPECT_EQ(mpi.tasks, 2);
  EXPECT_EQ(mpi.finding.level, Finding::kWarning);
  EXPECT_THAT(mpi.finding.text, HasSubstr("MASTER_ADDR"));
}

}  // namespace
}  // namespace pushpull
