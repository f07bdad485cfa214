#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/host/binding.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Cpus = std::vector<int>;

Cores cores_of(int cpus) {
  Cores cores;
  for (int cpu = 0; cpu < cpus; ++cpu) cores.cpus.push_back(cpu);
  return cores;
}

// Nodes of four cores with one thread each.
std::vector<CpuPlace> nodes_of_four(const Cores& cores) {
  std::vector<CpuPlace> places;
  for (const int cpu : cores.cpus) places.push_back({cpu, cpu / 4, cpu});
  return places;
}

std::vector<HostShare> shares(Bind bind, const Cores& cores, int64_t servers, int64_t workers) {
  return plan_host_shares(bind, cores, nodes_of_four(cores), servers, workers);
}

std::vector<int> core_counts(const std::vector<HostShare>& shares) {
  std::vector<int> out;
  for (const HostShare& share : shares) out.push_back(share.cores);
  return out;
}

TEST(HostShares, EachRoleCountsItsOwnProcesses) {
  const auto all = shares(Bind::kNone, cores_of(8), 2, 3);
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[1].task.rank, 1);
  EXPECT_EQ(all[1].task.size, 2);
  EXPECT_EQ(all[4].task.rank, 2);
  EXPECT_EQ(all[4].task.size, 3);
  EXPECT_THAT(all[4].cpus, IsEmpty());
}

TEST(HostShares, UnboundProcessesOfARoleShareTheCores) {
  EXPECT_THAT(core_counts(shares(Bind::kNone, cores_of(8), 1, 3)), ElementsAre(8, 2, 2, 2));
  EXPECT_THAT(core_counts(shares(Bind::kNone, cores_of(2), 1, 4)), ElementsAre(2, 1, 1, 1, 1));
}

TEST(HostShares, BoundToCoresNoTwoProcessesHaveTheSame) {
  const auto all = shares(Bind::kCores, cores_of(8), 1, 3);
  EXPECT_THAT(all[0].cpus, ElementsAre(0, 1));
  EXPECT_THAT(all[1].cpus, ElementsAre(2, 3));
  EXPECT_THAT(all[3].cpus, ElementsAre(6, 7));
  EXPECT_THAT(core_counts(all), ElementsAre(2, 2, 2, 2));
}

TEST(HostShares, BoundToNodesServersAndWorkersAreBesideEachOther) {
  const auto all = shares(Bind::kNuma, cores_of(8), 2, 4);
  EXPECT_EQ(all[0].cpus, all[2].cpus);
  EXPECT_EQ(all[1].cpus, all[5].cpus);
  EXPECT_THAT(all[1].cpus, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(core_counts(all), ElementsAre(4, 4, 2, 2, 2, 2));
}

TEST(HostShares, AQuotaIsDividedToo) {
  Cores cores = cores_of(8);
  cores.quota = 4.0;
  EXPECT_THAT(core_counts(shares(Bind::kNone, cores, 1, 2)), ElementsAre(4, 2, 2));
  EXPECT_THAT(core_counts(shares(Bind::kNuma, cores, 1, 2)), ElementsAre(4, 2, 2));
}

TEST(HostShares, MoreProcessesThanCoresHaveOneEach) {
  const auto all = shares(Bind::kCores, cores_of(2), 1, 3);
  EXPECT_THAT(all[2].cpus, ElementsAre(0));
  EXPECT_THAT(core_counts(all), ElementsAre(1, 1, 1, 1));
}

}  // namespace
}  // namespace pushpull
