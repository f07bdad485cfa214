// The interface of operations on the one that all networks have; ops_test.cpp compares its results.
#include "models/ops/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "models/ops/add.h"
#include "tests/models/ops/operation_run.h"

namespace pushpull {
namespace {

using test::OperationRun;

TEST(LinearOperation, ComputesRowsTimesWeight) {
  const ops::LinearSpec spec({.samples = 2, .inputs = 3, .outputs = 2});
  OperationRun op(1, spec, {ops::activation({2, 3})});
  op.set_input(0, {1, 2, 3, 4, 5, 6});
  op.set_param(0, {1, 0, 0, 0, 1, 1});
  op.set_param(1, {0.5F, -1});
  EXPECT_EQ(op.forward(), (std::vector<float>{1.5F, 4, 4.5F, 10}));
  op.backward({1, 0, 0, 2});
  EXPECT_EQ(op.dx(0), (std::vector<float>{1, 0, 0, 0, 2, 2}));
  EXPECT_EQ(op.dw(0), (std::vector<float>{1, 2, 3, 8, 10, 12}));
  EXPECT_EQ(op.dw(1), (std::vector<float>{1, 2}));
}

TEST(LinearOperation, NamesTheNodeWhoseInputDoesNotFit) {
  const ops::LinearSpec spec({.samples = 2, .inputs = 3, .outputs = 2});
  const std::vector inputs{ops::activation({2, 4})};
  try {
    spec.check("layers.0", inputs);
    FAIL() << "must be refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), testing::HasSubstr("layers.0 needs 2 rows of 3 elements, got 2x4"));
  }
}

}  // namespace
}  // namespace pushpull
