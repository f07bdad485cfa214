#include "ps/report/run_totals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

wire::Stats stats_of(double seconds, int64_t count) {
  wire::Stats stats;
  stats.set_cpu_seconds(seconds);
  stats.set_compute_seconds(2 * seconds);
  stats.set_push_seconds(3 * seconds);
  stats.set_wait_seconds(4 * seconds);
  stats.set_pull_seconds(5 * seconds);
  stats.set_computed(count);
  stats.set_peak_rss_kib(count);
  stats.set_bytes_pushed(count);
  stats.set_bytes_pulled(2 * count);
  stats.set_rejected_frames(3 * count);
  stats.set_refused_peers(4 * count);
  stats.set_clock_gap_max(count);
  return stats;
}

TEST(RunTotals, SumsByRoleAndKeepsTheLargest) {
  RunTotals totals;
  totals.add(wire::ROLE_SERVER, stats_of(0.0, 50));
  totals.add(wire::ROLE_WORKER, stats_of(1.0, 10));
  totals.add(wire::ROLE_WORKER, stats_of(2.0, 20));
  EXPECT_EQ(totals.servers.cpu_seconds, 0.0);
  EXPECT_EQ(totals.servers.peak_rss_kib, 50);
  EXPECT_EQ(totals.workers.cpu_seconds, 3.0);
  EXPECT_EQ(totals.workers.peak_rss_kib, 20);
  EXPECT_EQ(totals.bytes_pushed, 80);
  EXPECT_EQ(totals.bytes_pulled, 160);
  EXPECT_EQ(totals.rejected_frames, 240);
  EXPECT_EQ(totals.refused_peers, 320);
  EXPECT_EQ(totals.clock_gap_max, 50);
}

TEST(RunTotals, SumsSaturate) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  wire::Stats stats = stats_of(1.0, 1);
  stats.set_computed(kMax);
  stats.set_bytes_pushed(kMax);
  stats.set_bytes_pulled(kMax);
  stats.set_rejected_frames(kMax);
  wire::Refusal* refusal = stats.add_refusals();
  refusal->set_reason("push-share");
  refusal->set_count(kMax - 5);
  RunTotals totals;
  for (int i = 0; i < 2; ++i) totals.add(wire::ROLE_WORKER, stats);
  EXPECT_EQ(totals.tasks, kMax);
  EXPECT_EQ(totals.bytes_pushed, kMax);
  EXPECT_EQ(totals.bytes_pulled, kMax);
  EXPECT_EQ(totals.rejected_frames, kMax);
  EXPECT_EQ(totals.refusals, (std::map<std::string, int64_t>{{"other", 10}, {"push-share", kMax}}));
}

TEST(RunTotals, RefusalsAreSummedByReason) {
  RunTotals totals;
  wire::Stats stats;
  stats.set_rejected_frames(5);
  const auto add = [&](const std::string& reason, int64_t count) {
    wire::Refusal* refusal = stats.add_refusals();
    refusal->set_reason(reason);
    refusal->set_count(count);
  };
  add("push-share", 2);
  add("\x1b[31m", 1);
  add("pull-clock", 9);
  totals.add(wire::ROLE_SERVER, stats);
  totals.add(wire::ROLE_SERVER, stats);
  EXPECT_EQ(totals.rejected_frames, 10);
  EXPECT_EQ(totals.refusals, (std::map<std::string, int64_t>{{"other", 6}, {"push-share", 4}}))
      << "dishonest messages are not shown";
}

TEST(RunTotals, MeanTaskIsOverAllWorkers) {
  RunTotals totals;
  EXPECT_EQ(totals.mean_split().compute, 0.0) << "no task, no time";
  totals.add(wire::ROLE_WORKER, stats_of(1.0, 1));
  totals.add(wire::ROLE_WORKER, stats_of(2.0, 3));
  const RunTotals::Split split = totals.mean_split();
  EXPECT_DOUBLE_EQ(split.compute, 6.0 / 4);
  EXPECT_DOUBLE_EQ(split.push, 9.0 / 4);
  EXPECT_DOUBLE_EQ(split.wait, 12.0 / 4);
  EXPECT_DOUBLE_EQ(split.pull, 15.0 / 4);
}

wire::Stats stats_with(const std::string& name, double sum, int64_t count) {
  wire::Stats stats;
  wire::LoggedValue* value = stats.add_logged();
  value->set_name(name);
  value->set_sum(sum);
  value->set_count(count);
  return stats;
}

TEST(RunTotals, LoggedValuesHaveTheMeanOverAllWorkersSinceThen) {
  RunTotals before;
  before.add(wire::ROLE_WORKER, stats_with("gap", 6.0, 2));
  EXPECT_EQ(before.logged_since({}), (std::map<std::string, double>{{"gap", 3.0}}));
  EXPECT_TRUE(before.logged_since(before).empty());
  RunTotals now;
  now.add(wire::ROLE_WORKER, stats_with("gap", 7.0, 3));
  now.add(wire::ROLE_WORKER, stats_with("gap", 9.0, 2));
  now.add(wire::ROLE_WORKER, stats_with("norm/0", 4.0, 1));
  EXPECT_EQ(now.logged_since(before),
            (std::map<std::string, double>{{"gap", 10.0 / 3}, {"norm/0", 4.0}}));
}

TEST(Plausible, AreLoggedValues) {
  EXPECT_EQ(reason_of(check_stats(stats_with("val/F1.top-5_", 1.0, 1))), "");
  for (const std::string& name : {std::string(), std::string("a b"), std::string(65, 'a')}) {
    EXPECT_EQ(reason_of(check_stats(stats_with(name, 1.0, 1))), "bad-stats") << name;
  }
  EXPECT_EQ(reason_of(check_stats(stats_with("a", std::nan(""), 1))), "bad-stats");
  EXPECT_EQ(reason_of(check_stats(stats_with("a", 1.0, -1))), "bad-stats");
  wire::Stats many;
  for (int i = 0; i < 65; ++i) many.MergeFrom(stats_with("n" + std::to_string(i), 1.0, 1));
  EXPECT_EQ(reason_of(check_stats(many)), "bad-stats");
}

TEST(Plausible, AreStatisticsOfAnHonestMember) {
  EXPECT_EQ(reason_of(check_stats({})), "");
  EXPECT_EQ(reason_of(check_stats(stats_of(1.0, 1))), "");
  EXPECT_EQ(reason_of(check_stats(stats_of(-1.0, 1))), "bad-stats");
  EXPECT_EQ(reason_of(check_stats(stats_of(1.0, -1))), "bad-stats");
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    wire::Stats stats;
    stats.set_pull_seconds(bad);
    EXPECT_EQ(reason_of(check_stats(stats)), "bad-stats");
    stats = {};
    stats.set_cpu_seconds(bad);
    EXPECT_EQ(reason_of(check_stats(stats)), "bad-stats");
    stats = {};
    stats.set_cores(bad);
    EXPECT_EQ(reason_of(check_stats(stats)), "bad-stats");
  }
}

}  // namespace
}  // namespace pushpull
