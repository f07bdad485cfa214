#include "common/update/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/layout/slice_map.h"

namespace pushpull {
namespace {

// Magnitudes from 1e-6 to 1e3, so that the order of additions changes the bits.
std::vector<float> gradient(int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) {
    const float magnitude = uniform01(5, RandomStream::kDummyData, 1, i);
    out[i] = normal(5, RandomStream::kDummyData, 0, i) * std::pow(10.0F, 9.0F * magnitude - 6.0F);
  }
  return out;
}

std::vector<double> squares_of(const std::vector<float>& x, Range elements) {
  std::vector<double> out;
  for (int64_t lo = elements.lo; lo < elements.hi; lo += kBlockElements) {
    out.push_back(block_squares(x.data() + lo, std::min(kBlockElements, elements.hi - lo)));
  }
  return out;
}

// Computed as in a cluster: each server sums its slices, the coordinator finishes the tree.
double over_cluster(const std::vector<float>& x, int64_t slice_bytes, int servers) {
  const SliceMap map(std::ssize(x), slice_bytes, servers);
  std::vector<NormPart> parts;
  for (int server = servers - 1; server >= 0; --server) {
    for (const int slice : map.slices_of(server)) {
      const auto more =
          norm_parts(squares_of(x, map.elements(slice)), map.blocks(slice).lo, map.blocks());
      parts.insert(parts.end(), more.begin(), more.end());
    }
  }
  return total_squares(parts, map.blocks());
}

TEST(Norm, HasTheSameBitsForAnySlicesAndServers) {
  for (const int64_t n : {1, 1000, 1024, 1025, 30000, 71681}) {
    const std::vector<float> x = gradient(n);
    const double want = over_cluster(x, 1 << 30, 1);
    for (const int64_t bytes : {2048, 4096, 8192, 12288, 16384, 20480, 65536}) {
      for (int servers = 1; servers <= 7; ++servers) {
        EXPECT_EQ(over_cluster(x, bytes, servers), want) << n << ", " << bytes << ", " << servers;
      }
    }
  }
}

TEST(Norm, IsTheSumOfSquaresToDoublePrecision) {
  for (const int64_t n : {1, 7, 1024, 30000, 1000003}) {
    const std::vector<float> x = gradient(n);
    long double want = 0.0L;
    for (const float value : x) want += static_cast<long double>(value) * value;
    // a tree of depth d errs by at most d roundings; a block adds 128 values in sequence
    const double bound = 160 * std::numeric_limits<double>::epsilon();
    EXPECT_NEAR(static_cast<double>(over_cluster(x, 4096, 3) / want), 1.0, bound) << n;
  }
}

TEST(Norm, DoesNotOverflowWhereFloatsWould) {
  const std::vector<float> x(5000, 3e38F);
  EXPECT_DOUBLE_EQ(over_cluster(x, 4096, 2), 5000 * static_cast<double>(3e38F) * 3e38F);
}

TEST(Norm, ReportsANonFiniteNorm) {
  std::vector<float> x(5000, 1.0F);
  x[4321] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(over_cluster(x, 4096, 2)));
  x[4321] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(over_cluster(x, 4096, 2)));
}

TEST(Norm, RefusesPartsThatDoNotCoverTheGradient) {
  const std::vector<double> squares(10, 1.0);
  const std::vector<NormPart> whole = norm_parts(squares, 0, 10);
  EXPECT_EQ(total_squares(whole, 10), 10.0);
  const auto code_of = [](std::vector<NormPart> parts, int64_t blocks) {
    try {
      total_squares(std::move(parts), blocks);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::kFailed;
  };
  EXPECT_EQ(code_of({}, 10), ErrorCode::kProtocol);
  EXPECT_EQ(code_of(whole, 11), ErrorCode::kProtocol) << "a hole";
  EXPECT_EQ(code_of(whole, 9), ErrorCode::kProtocol) << "beyond the end";
  EXPECT_EQ(code_of({whole[0], whole[0]}, 10), ErrorCode::kProtocol) << "the same part twice";
  EXPECT_EQ(code_of({{{-5, 1LL << 60}, 1.0}}, 10), ErrorCode::kProtocol) << "absurd bounds";
  EXPECT_EQ(code_of({{{0, 5}, 1.0}, {{5, 10}, 1.0}}, 10), ErrorCode::kProtocol)
      << "not nodes of the tree";
}

TEST(Norm, ClipsOnlyLongGradients) {
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));  // PyTorch's clip_grad_norm_
  EXPECT_DOUBLE_EQ(clip_factor(100.0, 5.0), 5.0 / (100.0 + 1e-6));
}

}  // namespace
}  // namespace pushpull
