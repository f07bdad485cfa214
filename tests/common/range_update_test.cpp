#include "common/update/range_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/layout/tensor_table.h"

namespace pushpull {
namespace {

TensorInfo tensor(const std::string& name, int64_t size, InitKind init, float value) {
  TensorInfo info;
  info.name = name;
  info.shape = {size};
  info.init = init;
  info.value = value;
  return info;
}

TensorTable three_inits() {
  TensorTable table;
  table.add(tensor("constant", 11, InitKind::kConstant, 0.75F));
  table.add(tensor("normal", 101, InitKind::kNormal, 0.02F));
  table.add(tensor("uniform", 50, InitKind::kUniform, 0.5F));
  return table;
}

TEST(RangeUpdate, InitialisesEachTensorByItsRule) {
  const TensorTable table = three_inits();
  std::vector<float> weights(static_cast<size_t>(table.total));
  RangeUpdate(table, {0, table.total}, {}).initialise(9, weights.data());
  for (uint64_t i = 0; i < 11; ++i) EXPECT_EQ(weights[i], 0.75F);
  for (uint64_t i = 0; i < 101; ++i) {
    EXPECT_EQ(weights[11 + i], 0.02F * normal(9, RandomStream::kInit, 1, i)) << i;
  }
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(weights[112 + i], uniform01(9, RandomStream::kInit, 2, i) - 0.5F) << i;
  }
}

TEST(RangeUpdate, InitialWeightsDoNotDependOnTheCutIntoRanges) {
  const TensorTable table = three_inits();
  std::vector<float> whole(static_cast<size_t>(table.total));
  RangeUpdate(table, {0, table.total}, {}).initialise(9, whole.data());
  for (const int64_t cut : {1, 3, 13, 64}) {
    std::vector<float> parts(whole.size());
    for (int64_t lo = 0; lo < table.total; lo += cut) {
      RangeUpdate(table, {lo, std::min(lo + cut, table.total)}, {})
          .initialise(9, parts.data() + lo);
    }
    EXPECT_EQ(parts, whole) << cut;
  }
}

}  // namespace
}  // namespace pushpull
