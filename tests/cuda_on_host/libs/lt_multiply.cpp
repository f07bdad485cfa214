// The loops of the stand-in for cuBLASLt: sums are f32, in an order that depends on the algorithm
// only; one algorithm deliberately adds in any order.
#include <algorithm>
#include <atomic>
#include <vector>

#include "tests/cuda_on_host/libs/lt_matmul.h"

namespace pushpull::cuda_on_host {

namespace {

using Floats = std::vector<float>;

// op(matrix), row-major.
Floats unpack(const Matrix& matrix, const void* from, bool transpose, Rounding rounding) {
  const size_t rows = transpose ? matrix.columns : matrix.rows;
  const size_t columns = transpose ? matrix.rows : matrix.columns;
  Floats values(rows * columns);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      const size_t at = transpose ? i * matrix.stride + j : j * matrix.stride + i;
      values[i * columns + j] = round_operand(load(from, matrix.type, at), rounding);
    }
  }
  return values;
}

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

std::vector<Range> ranges(size_t k, const Algorithm& algorithm) {
  const size_t slices = std::min(k, algorithm.slices);
  std::vector<Range> all;
  for (size_t s = 0; s < slices; ++s) all.push_back({k * s / slices, k * (s + 1) / slices});
  if (algorithm.sums_in_any_order()) {
    static std::atomic<size_t> runs{0};
    const size_t first = runs++ % slices;
    std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
  }
  return all;
}

// sums += row of op(A), of one slice, times op(B)
void add_slice(const float* row, const float* b, Range range, bool from_the_end, Floats& sums) {
  for (size_t step = 0; step < range.end - range.begin; ++step) {
    const size_t k = from_the_end ? range.end - 1 - step : range.begin + step;
    const float factor = row[k];
    const float* const of_b = b + k * sums.size();
    for (size_t j = 0; j < sums.size(); ++j) sums[j] += factor * of_b[j];
  }
}

}  // namespace

void multiply(const Problem& problem, const Algorithm& algorithm, const Operands& operands) {
  scribble(operands.workspace, algorithm.workspace(problem));
  const Floats a = unpack(problem.a, operands.a, problem.transpose_a, problem.rounding);
  const Floats b = unpack(problem.b, operands.b, problem.transpose_b, problem.rounding);
  const std::vector<Range> slices = ranges(problem.k, algorithm);
  Floats row(problem.n);
  Floats sums(problem.n);
  for (size_t i = 0; i < problem.m; ++i) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (const Range& slice : slices) {
      std::fill(row.begin(), row.end(), 0.0F);
      add_slice(&a[i * problem.k], b.data(), slice, algorithm.from_the_end, row);
      for (size_t j = 0; j < problem.n; ++j) sums[j] += row[j];
    }
    const float bias = problem.bias ? load(problem.bias_at, problem.d.type, i) : 0.0F;
    for (size_t j = 0; j < problem.n; ++j) {
      float value = operands.alpha * sums[j];
      // if beta is 0, C may be anything
      if (operands.beta != 0.0F) {
        value += operands.beta * load(operands.c, problem.c.type, j * problem.c.stride + i);
      }
      if (problem.bias) value += bias;
      if (problem.relu && value <= 0.0F) value = 0.0F;
      store(value, operands.d, problem.d.type, j * problem.d.stride + i);
    }
  }
  scribble(operands.workspace, algorithm.workspace(problem));
}

}  // namespace pushpull::cuda_on_host
