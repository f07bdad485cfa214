#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "client/read_model.h"
#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

std::string error_of(Metric metric, const HeadSums& sums) {
  const std::array heads{HeadInfo{"words", metric, kMaxTargets}};
  return thrown(ErrorCode::kUsage, [&] { check_sums(heads, 4, std::array{sums}); });
}

TEST(CheckSums, AcceptsWhatTheCoordinatorAccepts) {
  EXPECT_EQ(error_of(Metric::kAccuracy, {2.0, 4, 4.0}), "");
  EXPECT_EQ(error_of(Metric::kAccuracy, {NAN, 0, 0.0}), "");
  EXPECT_EQ(error_of(Metric::kExactMatch, {2.0, 400, 399.0}), "");
  EXPECT_EQ(error_of(Metric::kMeanSquaredError, {2.0, 4, NAN}), "");
  EXPECT_EQ(error_of(Metric::kPerplexity, {2.0, 4, -8.0}), "");
}

TEST(CheckSums, RefusesCountsThatCannotBe) {
  EXPECT_THAT(error_of(Metric::kAccuracy, {2.0, 4, 900.0}),
              HasSubstr("head words reports 900 correct targets of 4 counted ones"));
  for (const double correct : {-1.0, 0.5, static_cast<double>(NAN)}) {
    EXPECT_THAT(error_of(Metric::kExactMatch, {2.0, 4, correct}), HasSubstr("a whole number"));
  }
  for (const int64_t counted : {int64_t{-1}, 4 * kMaxTargets + 1}) {
    EXPECT_THAT(error_of(Metric::kPerplexity, {2.0, counted, 2.0}),
                HasSubstr("counted targets of 4 samples"));
  }
}

}  // namespace
}  // namespace pushpull
