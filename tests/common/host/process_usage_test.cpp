#include <gtest/gtest.h>

#include <vector>

#include "common/host/cores.h"
#include "common/host/resources.h"

namespace pushpull {
namespace {

TEST(ProcessUsage, ResidentMemoryRisesAndFallsWhileThePeakStays) {
  constexpr size_t kBytes = size_t{64} << 20;
  const ProcessUsage before = process_usage();
  EXPECT_GT(before.rss_kib, 1024);
  {
    const std::vector<char> pages(kBytes, 'p');
    EXPECT_GT(process_usage().rss_kib, before.rss_kib + 60'000) << pages.size();
  }
  const ProcessUsage after = process_usage();
  EXPECT_LT(after.rss_kib, before.rss_kib + 30'000);
  EXPECT_GT(after.peak_rss_kib, before.rss_kib + 60'000);
}

TEST(ProcessUsage, CoresAreThoseThatThisProcessCanUse) {
  EXPECT_EQ(process_usage().cores, own_cores().given());
  EXPECT_GE(process_usage().memory_limit_kib, 0);
}

}  // namespace
}  // namespace pushpull
