// The CUDA backend's calls of libraries, computed by plain loops: products in the terms of a
// column-major library, and convolution unrolled into products.
#include <gtest/gtest.h>

#include <vector>

#include "models/ops/cuda/plans.h"
#include "tests/models/reference.h"

namespace pushpull::ops::cuda {
namespace {

using reference::Values;

Values numbers(int64_t count, double seed) {
  Values v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(seed + 1.7 * static_cast<double>(i));
  return v;
}

// Returns the result of a column-major library for these descriptions alone.
Values multiply(const MatmulPlan& plan, const Values& first, const Values& second) {
  const auto at = [](const ColumnMajor& m, const Values& v, int64_t row, int64_t column) {
    if (m.transpose) std::swap(row, column);
    EXPECT_LT(row, m.rows);
    EXPECT_LT(column, m.columns);
    return v.at(static_cast<size_t>(column * m.stride + row));
  };
  const int64_t k = plan.first.transpose ? plan.first.rows : plan.first.columns;
  EXPECT_EQ(k, plan.second.transpose ? plan.second.columns : plan.second.rows);
  Values d(static_cast<size_t>(plan.result.stride * plan.result.columns));
  for (int64_t i = 0; i < plan.result.rows; ++i)
    for (int64_t j = 0; j < plan.result.columns; ++j)
      for (int64_t l = 0; l < k; ++l)
        d.at(static_cast<size_t>(j * plan.result.stride + i)) +=
            at(plan.first, first, i, l) * at(plan.second, second, l, j);
  return d;
}

Values run(const Product& product, const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), static_cast<size_t>(product.a_elements()));
  EXPECT_EQ(b.size(), static_cast<size_t>(product.b_elements()));
  return multiply(plan_matmul(product), b, a);
}

void expect_equal(const Values& seen, const Values& expected) {
  ASSERT_EQ(seen.size(), expected.size());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], expected[i], 1e-12) << i;
}

TEST(MatmulPlan, ThreeProductsOfALayerEqualTheReference) {
  for (const LinearShape shape :
       {LinearShape{2, 3, 4}, LinearShape{5, 1, 7}, LinearShape{1, 6, 1}, LinearShape{4, 4, 4}}) {
    const auto [n, k, m, relu, bias, transposed] = shape;
    const Values x = numbers(n * k, 1.0);
    const Values w = numbers(m * k, 2.0);
    const Values dy = numbers(n * m, 3.0);
    const LayerProducts products = layer_products(n, k, m);
    const Values no_bias(static_cast<size_t>(m));
    expect_equal(run(products.forward, x, w), reference::linear(shape, x, w, no_bias));
    const auto expected = reference::linear_backward(shape, x, w, {}, dy);
    expect_equal(run(products.weights, dy, x), expected.dw);
    expect_equal(run(products.data, dy, w), expected.dx);
  }
}

TEST(MatmulPlan, ProductsOfATransposedWeightEqualTheReference) {
  const int64_t n = 5, k = 7, m = 3;
  LinearShape shape{n, k, m};
  const Values x = numbers(n * k, 1.0);
  const Values w = numbers(m * k, 2.0);  // [m, k]
  const Values dy = numbers(n * m, 3.0);
  const auto turned = [&](const Values& from) {  // [m, k] -> [k, m]
    Values to(from.size());
    for (size_t i = 0; i < 3; ++i)
      for (size_t j = 0; j < 7; ++j) to[j * 3 + i] = from[i * 7 + j];
    return to;
  };
  const LayerProducts products = layer_products(n, k, m, true);
  expect_equal(run(products.forward, x, turned(w)),
               reference::linear(shape, x, w, Values(static_cast<size_t>(m))));
  const auto expected = reference::linear_backward(shape, x, w, {}, dy);
  expect_equal(run(products.weights, x, dy), turned(expected.dw));
  expect_equal(run(products.data, dy, turned(w)), expected.dx);
}

TEST(MatmulPlan, BothTransposedIsAProductToo) {
  const Product product{2, 3, 4, true, true};
  const Values a = numbers(8, 1.0);   // [4, 2]
  const Values b = numbers(12, 2.0);  // [3, 4]
  Values expected(6);
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 3; ++j)
      for (size_t l = 0; l < 4; ++l) expected[i * 3 + j] += a[l * 2 + i] * b[j * 4 + l];
  expect_equal(run(product, a, b), expected);
}

TEST(MatmulPlan, NamesOfProductsAreUnique) {
  EXPECT_EQ((Product{512, 4096, 784, false, true}).name(), "512x4096x784nt");
  EXPECT_NE((Product{2, 3, 4, true, false}).name(), (Product{2, 3, 4, false, true}).name());
}

const std::vector<ConvolutionShape> convolutions = {
    {.input = {2, 3, 5, 4}, .outputs = 4, .kernel = 3, .padding = 1},
    {.input = {3, 1, 6, 7}, .outputs = 2, .kernel = 5, .padding = 2},
    {.input = {1, 2, 4, 4}, .outputs = 3, .kernel = 1, .padding = 0},
    {.input = {2, 5, 3, 3}, .outputs = 1, .kernel = 3, .padding = 0},
    {.input = {2, 2, 2, 6}, .outputs = 2, .kernel = 4, .padding = 3},
    {.input = {2, 3, 7, 8}, .outputs = 2, .kernel = 3, .padding = 1, .stride = 2},
    {.input = {1, 2, 9, 5}, .outputs = 3, .kernel = 1, .padding = 0, .stride = 3},
    {.input = {2, 1, 8, 8}, .outputs = 2, .kernel = 7, .padding = 3, .stride = 2},
};

// Returns rows of [samples * positions, channels] from an image, the layout of dy in the kernels.
Values rows_of(const ImageShape& s, const Values& image) {
  Values rows(image.size());
  const int64_t positions = s.height * s.width;
  for (int64_t n = 0; n < s.samples; ++n)
    for (int64_t c = 0; c < s.channels; ++c)
      for (int64_t p = 0; p < positions; ++p)
        rows[static_cast<size_t>((n * positions + p) * s.channels + c)] =
            image[static_cast<size_t>((n * s.channels + c) * positions + p)];
  return rows;
}

TEST(Im2col, UnrolledConvolutionEqualsTheReference) {
  for (const ConvolutionShape& shape : convolutions) {
    const Im2col plan = plan_im2col(shape);
    const int64_t rows = shape.input.samples * plan.positions();
    const Values x = numbers(shape.input.size(), 1.0);
    const Values w = numbers(shape.outputs * plan.columns(), 2.0);
    const Values dy = numbers(shape.output().size(), 3.0);
    Values columns;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < plan.columns(); ++column) {
        const int64_t source = plan.source(row, column);
        columns.push_back(source < 0 ? 0.0 : x.at(static_cast<size_t>(source)));
      }
    const LayerProducts products = layer_products(rows, plan.columns(), shape.outputs);
    const Values no_bias(static_cast<size_t>(shape.outputs));
    expect_equal(run(products.forward, columns, w),
                 rows_of(shape.output(), reference::convolution(shape, x, w, no_bias)));

    const auto expected = reference::convolution_backward(shape, x, w, dy);
    const Values dy_rows = rows_of(shape.output(), dy);
    expect_equal(run(products.weights, dy_rows, columns), expected.dw);
    const Values dcolumns = run(products.data, dy_rows, w);
    for (int64_t i = 0; i < shape.input.size(); ++i) {
      const float dx = plan.gather(
          i, [&](int64_t at) { return static_cast<float>(dcolumns.at(static_cast<size_t>(at))); });
      EXPECT_NEAR(dx, expected.dx[static_cast<size_t>(i)], 1e-4) << i;
    }
  }
}

TEST(TransposePlan, EachElementIsMovedOnce) {
  for (const TransposePlan plan : {TransposePlan{2, 3, 5}, TransposePlan{1, 32, 64},
                                   TransposePlan{3, 33, 31}, TransposePlan{2, 1, 100}}) {
    std::vector<int64_t> to(static_cast<size_t>(plan.batch * plan.rows * plan.columns), -1);
    for (int64_t index = 0; index < plan.tiles(); ++index) {
      const TransposePlan::Tile tile = plan.tile(index);
      for (int i = 0; i < TransposePlan::kTile; ++i)
        for (int j = 0; j < TransposePlan::kTile; ++j) {
          const int64_t target = plan.target(tile, i, j);
          ASSERT_EQ(target < 0, plan.source(tile, i, j) < 0);
          if (target < 0) continue;
          EXPECT_EQ(to.at(static_cast<size_t>(target)), -1);
          to[static_cast<size_t>(target)] = plan.source(tile, i, j);
        }
    }
    size_t at = 0;
    for (int64_t n = 0; n < plan.batch; ++n)
      for (int64_t c = 0; c < plan.columns; ++c)
        for (int64_t r = 0; r < plan.rows; ++r)
          ASSERT_EQ(to[at++], (n * plan.rows + r) * plan.columns + c);
  }
}

TEST(Im2col, ColumnsStayWithinTheirMemoryExceptForOneSample) {
  const Im2col plan = plan_im2col(convolutions[0]);
  const int64_t each = plan.positions() * plan.columns() * 4;
  EXPECT_EQ(samples_at_a_time(plan, 100, 4, 3 * each), 3);
  EXPECT_EQ(samples_at_a_time(plan, 100, 4, 4 * each - 1), 3);
  EXPECT_EQ(samples_at_a_time(plan, 2, 4, 3 * each), 2);
  EXPECT_EQ(samples_at_a_time(plan, 100, 4, 1), 1);
}

}  // namespace
}  // namespace pushpull::ops::cuda
