#include "worker/compute/gradient_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "tests/worker/leaf_gradients.h"

namespace pushpull {
namespace {

// Runs a node of `leaves` micro-batches. In the last one backward finishes the last tensor first.
std::vector<Given> run(GradientSum& sum, const TensorTable& table, int64_t leaves) {
  std::vector<Given> out;
  sum.begin(leaves);
  for (int64_t i = 0; i < leaves; ++i) {
    const std::vector<float> gradient = leaf(i, table.total);
    const std::span<float> place = sum.leaf();
    EXPECT_EQ(std::ssize(place), table.total);
    for (size_t t = table.tensors.size(); t-- > 0;) {
      const TensorInfo& tensor = table.tensors[t];
      std::copy_n(gradient.begin() + tensor.offset, tensor.size, place.begin() + tensor.offset);
      if (!sum.in_last_leaf()) continue;
      sum.tensor_ready(t, [&](int slice, Payload part) {
        out.push_back({slice, std::move(part)});
      });
    }
    sum.end_leaf();
  }
  return out;
}

TEST(GradientSum, HasTheBitsOfThePlainTreeForAnyNumberOfMicroBatches) {
  const TensorTable table = some_table();
  const SliceMap map(table.total, 4096, 2);
  const auto sum = make_host_sum(elements_of(table), map);
  for (int64_t leaves = 1; leaves <= 17; ++leaves) {
    run(*sum, table, leaves);
    const std::vector<float> want = recursive_sum({0, leaves}, table.total);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), sum->sum().begin())) << leaves;
  }
}

TEST(GradientSum, DeliversEachSliceOnceWithItsPartOfTheSum) {
  const TensorTable table = some_table();
  for (const int64_t bytes : {4096, 8192, 1 << 20}) {
    const SliceMap map(table.total, bytes, 1);
    const auto sum = make_host_sum(elements_of(table), map);
    for (const int64_t leaves : {1, 2, 5, 8}) {
      const std::vector<Given> given = run(*sum, table, leaves);
      ASSERT_EQ(static_cast<int>(given.size()), map.slices());
      const std::vector<float> want = recursive_sum({0, leaves}, table.total);
      std::vector<int> times(static_cast<size_t>(map.slices()));
      for (const Given& g : given) {
        ++times[static_cast<size_t>(g.slice)];
        const Range e = map.elements(g.slice);
        ASSERT_EQ(static_cast<int64_t>(g.part.float_count()), e.size());
        EXPECT_TRUE(std::equal(want.begin() + e.lo, want.begin() + e.hi, g.part.floats()));
      }
      EXPECT_EQ(std::count(times.begin(), times.end(), 1), map.slices());
    }
  }
}

TEST(GradientSum, SliceIsDeliveredAsSoonAsItsLastTensorIsFinal) {
  TensorTable table;
  for (const int64_t size : {1024, 2048, 1000, 24, 500}) {
    TensorInfo info;
    info.shape = {size};
    table.add(info);
  }
  const SliceMap map(table.total, 4096, 1);  // slices: t0 | t1 | t1 | t2 t3 | t4
  const auto sum = make_host_sum(elements_of(table), map);
  std::vector<int> given;
  const auto ready = [&](int slice, const Payload&) { given.push_back(slice); };
  sum->begin(1);
  const std::span<float> place = sum->leaf();
  std::fill(place.begin(), place.end(), 1.0F);
  sum->tensor_ready(4, ready);
  EXPECT_EQ(given, (std::vector<int>{4}));
  sum->tensor_ready(3, ready);
  EXPECT_EQ(given, (std::vector<int>{4})) << "slice 3 also holds t2";
  sum->tensor_ready(2, ready);
  EXPECT_EQ(given, (std::vector<int>{4, 3}));
  sum->tensor_ready(1, ready);
  EXPECT_EQ(given, (std::vector<int>{4, 3, 1, 2}));
  sum->tensor_ready(0, ready);
  EXPECT_EQ(given, (std::vector<int>{4, 3, 1, 2, 0}));
  sum->end_leaf();
}

// Slices of 1024 floats: t0 t1 | t1 | t1. Returns whether each is finite, with `bad` at `place` of
// the last of two micro-batches and these bounds of t0 and t1 in each.
std::vector<bool> finite(size_t place, float bad,
                         const std::vector<std::pair<double, double>>& bounds) {
  TensorTable table;
  for (const int64_t size : {100, 2972}) {
    TensorInfo info;
    info.shape = {size};
    table.add(info);
  }
  const auto sum = make_host_sum(elements_of(table), SliceMap(table.total, 4096, 1));
  std::vector<bool> out(3);
  sum->begin(2);
  for (const size_t i : {0, 1}) {
    const std::span<float> gradient = sum->leaf();
    std::ranges::fill(gradient, 1.0F);
    if (i == 1) gradient[place] = bad;
    for (const size_t tensor : {1, 0}) {
      if (!bounds.empty()) sum->bound(tensor, tensor == 0 ? bounds[i].first : bounds[i].second);
      if (!sum->in_last_leaf()) continue;
      sum->tensor_ready(tensor, [&](int slice, const Payload& part) {
        out[static_cast<size_t>(slice)] = sum->finite(slice, part);
      });
    }
    sum->end_leaf();
  }
  return out;
}

// A stage of a group sums some elements only, and slices end where stages do.
TEST(GradientSum, TouchesNothingOutsideOfItsTensors) {
  const SliceMap map(9000, 4096, 1, {3000});
  const float poison = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::shared_ptr<float[]>> buffers;
  const auto sum = make_host_sum({{3072, 5000}, {5000, 9000}}, map, [&](size_t floats) {
    buffers.push_back(heap_floats(floats));
    std::fill_n(buffers.back().get(), floats, poison);
    return buffers.back();
  });
  std::vector<int> slices;
  const GradientSum::SliceReady ready = [&](int slice, const Payload& part) {
    slices.push_back(slice);
    EXPECT_EQ(std::ssize(part.bytes), 4 * map.elements(slice).size());
    EXPECT_EQ(part.floats()[0], 3.0F);
  };
  sum->begin(3);
  for (int leaf = 0; leaf < 3; ++leaf) {
    std::ranges::fill(sum->leaf().subspan(3072), 1.0F);
    if (sum->in_last_leaf()) sum->all_ready(ready);
    sum->end_leaf();
  }
  EXPECT_EQ(slices, (std::vector<int>{5, 6, 7, 8, 3, 4}));
  for (const auto& buffer : buffers) {
    EXPECT_TRUE(
        std::all_of(buffer.get(), buffer.get() + 3072, [](float x) { return std::isnan(x); }));
  }
}

TEST(GradientSum, FindsWhatIsNotFinite) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  using Bounds = std::vector<std::pair<double, double>>;
  using Finite = std::vector<bool>;
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(finite(99, bad, {}), (Finite{false, true, true}));
    EXPECT_EQ(finite(100, bad, {}), (Finite{false, true, true}));
    EXPECT_EQ(finite(1024, bad, {}), (Finite{true, false, true}));
    EXPECT_EQ(finite(3071, bad, {}), (Finite{true, true, false}));
    // bounds that are unknown in either micro-batch, or too large
    for (const double none : {kInfinite, -std::nan(""), 1e31}) {
      EXPECT_EQ(finite(1024, bad, Bounds{{1, none}, {1, 1}}), (Finite{true, false, true}));
      EXPECT_EQ(finite(1024, bad, Bounds{{1, 1}, {1, none}}), (Finite{true, false, true}));
      EXPECT_EQ(finite(99, bad, Bounds{{1, 1}, {none, 1}}), (Finite{false, true, true}));
    }
    // a bounded tensor is not read, but its neighbour in the slice is
    EXPECT_EQ(finite(100, bad, Bounds{{kInfinite, 1}, {kInfinite, 1}}), (Finite{true, true, true}));
    EXPECT_EQ(finite(99, bad, Bounds{{kInfinite, 1}, {kInfinite, 1}}), (Finite{false, true, true}));
  }
}

TEST(GradientSum, PartHeldByASocketIsNotOverwritten) {
  const TensorTable table = some_table();
  const SliceMap map(table.total, 4096, 1);
  const auto sum = make_host_sum(elements_of(table), map);
  const std::vector<Given> held = run(*sum, table, 4);
  const std::vector<float> want = recursive_sum({0, 4}, table.total);
  for (int i = 0; i < 3; ++i) run(*sum, table, 5);
  for (const Given& g : held) {
    const Range e = map.elements(g.slice);
    EXPECT_TRUE(std::equal(want.begin() + e.lo, want.begin() + e.hi, g.part.floats()));
  }
}

TEST(GradientSum, MoreMicroBatchesThanAnnouncedAreAnAssertion) {
  const TensorTable table = some_table();
  const auto sum = make_host_sum(elements_of(table), SliceMap(table.total, 4096, 1));
  EXPECT_THROW(sum->begin(0), Error);
  run(*sum, table, 2);
  EXPECT_THROW(sum->leaf(), Error);
}

}  // namespace
}  // namespace pushpull
