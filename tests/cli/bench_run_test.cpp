#include "cli/bench/bench_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

namespace pushpull {
namespace {

using testing::ElementsAre;

// Two workers; the first steps are warm-up.
ExchangeRecord record() {
  ExchangeRecord out;
  out.workers = {{{0, 0, 9000}, {10'000, 0, 15'000}, {20'000, 0, 23'000}, {30'000, 0, 0}},
                 {{0, 0, 9000}, {11'000, 0, 14'000}, {21'000, 0, 28'000}}};
  return out;
}

TEST(BenchRun, AStepTakesAsLongAsItsSlowestWorker) {
  EXPECT_THAT(exchange_us(record(), 1), ElementsAre(5.0, 7.0));
  EXPECT_THAT(exchange_us(record(), 0), ElementsAre(9.0, 5.0, 7.0));
  EXPECT_THAT(exchange_us(record(), 3), ElementsAre());
}

TEST(BenchRun, AStepUnfinishedByAWorkerDoesNotCount) {
  ExchangeRecord cut = record();
  cut.workers[1][2].end = 0;
  EXPECT_THAT(exchange_us(cut, 1), ElementsAre(5.0));
}

TEST(BenchRun, PushAndPullOfOneWorkerAreTimedSeparately) {
  ExchangeRecord alone;
  alone.workers = {{{0, 0, 0}, {1000, 3000, 4000}, {5000, 9000, 11'000}, {12'000, 0, 0}}};
  const OneWay way = one_way(alone, 1);
  EXPECT_EQ(way.push.p50, 2.0);
  EXPECT_EQ(way.push.p99, 4.0);
  EXPECT_EQ(way.pull.p50, 1.0);
  EXPECT_EQ(way.pull.p99, 2.0);
  alone.workers = {{{1000, 0, 0}}};
  EXPECT_THROW(one_way(alone, 0), Error);
}

TEST(BenchRun, ReadsTheTimesThatAWorkerWrote) {
  std::vector<ExchangeTimes> times;
  ExchangeSetting setting;
  ASSERT_TRUE(read_times("auto momentum 2\n1 2 3\n4 0 6\n", times, setting));
  EXPECT_EQ(setting.transport, "auto");
  EXPECT_EQ(setting.optimizer, "momentum");
  EXPECT_EQ(setting.servers, 2);
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].pushed, 2);
  EXPECT_EQ(times[1].end, 6);
  for (const char* text :
       {"", "auto momentum\n", "auto momentum 2\n", "auto momentum 2\n1 x 3\n"}) {
    times.clear();
    EXPECT_FALSE(read_times(text, times, setting)) << text;
  }
}

TEST(BenchRun, AnUnavailableTransportIsReported) {
  EXPECT_EQ(fallback_note("server 0: warning: no socket for metrics\n"
                          "worker 1 | worker 1: warning: sockets to server 0 (other host)\n"
                          "worker 0 | worker 0: warning: sockets to server 0 (other)\n"),
            "sockets to server 0 (other host)");
  EXPECT_EQ(fallback_note("worker 0 | worker 0: shared memory with server 0\n"
                          "worker 0 | worker 0: warning: the clock stood still\n"),
            "");
}

TEST(BenchRun, LargeTensorsAreExchangedLessOften) {
  BenchOptions options;
  const ExchangePlan small = plan_exchange(options, 4096, Transport::kTcp, 2);
  const ExchangePlan large = plan_exchange(options, 104'857'600, Transport::kTcp, 2);
  EXPECT_GT(small.steps, large.steps);
  EXPECT_GE(large.steps, 20);
  EXPECT_GE(large.warm_up, 3);
  options.steps = 5;
  EXPECT_EQ(plan_exchange(options, 4096, Transport::kTcp, 2).steps, 5);
}

}  // namespace
}  // namespace pushpull
