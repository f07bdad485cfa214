#include "common/host/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/base/error.h"
#include "tests/common/host/fake_root.h"

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

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Cpus = std::vector<int>;

// Two packages with a node each, four cores of two threads on each; CPU n + 8 is the second thread of core n, as on
// most servers. Package 0 has the even cores.
void put_two_packages(FakeRoot& host) {
  host.put("/sys/devices/system/node/online", "0-1\n")
      .put("/sys/devices/system/node/node0/cpulist", "0,2,4,6,8,10,12,14\n")
      .put("/sys/devices/system/node/node1/cpulist", "1,3,5,7,9,11,13,15\n");
  for (int cpu = 0; cpu < 16; ++cpu) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    host.put(folder + "physical_package_id", std::to_string(cpu % 2) + "\n");
    host.put(folder + "core_id", std::to_string(cpu % 8 / 2) + "\n");
  }
}

Cpus up_to(int end) {
  Cpus cpus;
  for (int cpu = 0; cpu < end; ++cpu) cpus.push_back(cpu);
  return cpus;
}

std::vector<CpuPlace> places_of(const Cpus& cpus) {
  FakeRoot host;
  put_two_packages(host);
  return read_topology(cpus, host.root());
}

TEST(Binding, TopologyIsOrderedByNodeAndCore) {
  Cpus order;
  for (const CpuPlace& place : places_of(up_to(16))) order.push_back(place.cpu);
  EXPECT_THAT(order, ElementsAre(0, 8, 2, 10, 4, 12, 6, 14, 1, 9, 3, 11, 5, 13, 7, 15));
  EXPECT_EQ(count_nodes(places_of(up_to(16))), 2);
  EXPECT_EQ(count_nodes(places_of({0, 2})), 1) << "only the given CPUs count";
}

TEST(Binding, AHostThatDoesNotSayHasOneNodeAndACoreForEachCpu) {
  const FakeRoot silent;
  const auto places = read_topology({3, 5, 6}, silent.root());
  EXPECT_EQ(count_nodes(places), 1);
  EXPECT_THAT(plan_binding(Bind::kCores, places, 3).cpus, ElementsAre(Cpus{3}, Cpus{5}, Cpus{6}));
}

TEST(Binding, EachProcessHasWholeCoresOfItsOwn) {
  const BindPlan plan = plan_binding(Bind::kCores, places_of(up_to(16)), 4);
  EXPECT_FALSE(plan.shared);
  EXPECT_THAT(plan.cpus, ElementsAre(Cpus{0, 2, 8, 10}, Cpus{4, 6, 12, 14}, Cpus{1, 3, 9, 11},
                                     Cpus{5, 7, 13, 15}));
}

TEST(Binding, SharesDifferByAtMostOneCoreAndCoverAll) {
  for (int64_t processes = 1; processes <= 8; ++processes) {
    const BindPlan plan = plan_binding(Bind::kCores, places_of(up_to(16)), processes);
    std::set<int> all;
    size_t least = 16;
    size_t most = 0;
    for (const Cpus& cpus : plan.cpus) {
      all.insert(cpus.begin(), cpus.end());
      least = std::min(least, cpus.size());
      most = std::max(most, cpus.size());
    }
    EXPECT_EQ(all.size(), 16U) << processes;
    EXPECT_LE(most - least, 2U) << processes;
  }
}

TEST(Binding, MoreProcessesThanCoresShareThemInTurn) {
  const BindPlan plan = plan_binding(Bind::kCores, places_of({0, 1, 8, 9}), 3);
  EXPECT_TRUE(plan.shared);
  EXPECT_THAT(plan.cpus, ElementsAre(Cpus{0, 8}, Cpus{1, 9}, Cpus{0, 8}));
}

TEST(Binding, NodesAreDealtOutInBlocks) {
  const Cpus even = {0, 2, 4, 6, 8, 10, 12, 14};
  const Cpus odd = {1, 3, 5, 7, 9, 11, 13, 15};
  const auto places = places_of(up_to(16));
  EXPECT_THAT(plan_binding(Bind::kNuma, places, 4).cpus, ElementsAre(even, even, odd, odd));
  EXPECT_THAT(plan_binding(Bind::kNuma, places, 3).cpus, ElementsAre(even, even, odd));
  EXPECT_THAT(plan_binding(Bind::kNuma, places, 2).cpus, ElementsAre(even, odd));
  EXPECT_THAT(plan_binding(Bind::kNuma, places, 1).cpus, ElementsAre(even));
  EXPECT_FALSE(plan_binding(Bind::kNuma, places, 4).shared);
}

TEST(Binding, OnlyTheGivenCpusAreUsed) {
  EXPECT_THAT(plan_binding(Bind::kNuma, places_of({2, 3, 10}), 2).cpus,
              ElementsAre(Cpus{2, 10}, Cpus{3}));
}

TEST(Binding, NoneBindsNothing) {
  EXPECT_THAT(plan_binding(Bind::kNone, places_of(up_to(16)), 4).cpus, IsEmpty());
}

TEST(Binding, TheFlagHasThreeValues) {
  EXPECT_EQ(parse_bind("none"), Bind::kNone);
  EXPECT_EQ(parse_bind("cores"), Bind::kCores);
  EXPECT_EQ(parse_bind("numa"), Bind::kNuma);
  EXPECT_THROW(parse_bind("core"), Error);
}

}  // namespace

}  // namespace pushpull
