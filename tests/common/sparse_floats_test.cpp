#include "common/base/sparse_floats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

#include "common/base/buffer_pool.h"

namespace pushpull {
namespace {

TEST(SparseFloats, AreZeroAndTakeMemoryWhereTheyAreWritten) {
  constexpr size_t kFloats = size_t{16} << 20;
  const auto pages = [] {  // resident ones
    std::ifstream statm("/proc/self/statm");
    int64_t size = 0;
    int64_t resident = 0;
    statm >> size >> resident;
    return resident;
  };
  const int64_t before = pages();
  const auto floats = sparse_floats(kFloats);
  EXPECT_LT(pages() - before, 1024);
  std::fill_n(floats.get() + kFloats / 2, kFloats / 2, 1.0F);
  EXPECT_EQ(floats[kFloats / 2 - 1], 0.0F);
  EXPECT_GE(pages() - before, 8000);
  EXPECT_LT(pages() - before, 9216);
  EXPECT_NE(sparse_floats(0), nullptr);
  EXPECT_THROW(sparse_floats(size_t{1} << 60), NoFloats);
}

}  // namespace
}  // namespace pushpull
