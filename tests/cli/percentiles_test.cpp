#include "cli/floors/percentiles.h"

#include <gtest/gtest.h>

#include <numeric>

namespace pushpull {
namespace {

TEST(Percentiles, AreMeasuredValues) {
  std::vector<double> values(100);
  std::iota(values.rbegin(), values.rend(), 1.0);  // 100, 99, ... 1
  EXPECT_EQ(percentile(values, 0.5), 50.0);
  EXPECT_EQ(percentile(values, 0.99), 99.0);
  EXPECT_EQ(percentile(values, 1.0), 100.0);
  EXPECT_EQ(percentile({7.0}, 0.5), 7.0);
  EXPECT_EQ(percentile({1.0, 2.0}, 0.5), 1.0);
  EXPECT_EQ(percentiles({3.0, 1.0, 2.0}).p50, 2.0);
  EXPECT_EQ(percentiles({3.0, 1.0, 2.0}).p99, 3.0);
}

TEST(Percentiles, TheMeanIsTakenForEachFigure) {
  const Percentiles middle = mean({1.0, 10.0}, {3.0, 30.0});
  EXPECT_EQ(middle.p50, 2.0);
  EXPECT_EQ(middle.p99, 20.0);
}

}  // namespace
}  // namespace pushpull
