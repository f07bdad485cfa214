// Expresses a product of row-major matrices for a column-major library: a row-major matrix is its
// transpose in column-major order, so the library computes Dᵀ = op(B)ᵀ op(A)ᵀ, and its first factor
// is our second. Source: the cuBLAS documentation, "Data layout". Pure.
#pragma once

#include <cstdint>
#include <string>

namespace pushpull::ops::cuda {

// D [m, n] = op(A) [m, k] op(B) [k, n], all row-major and packed.
struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;  // A is stored as [k, m]
  bool transpose_b = false;  // B is stored as [n, k]

  int64_t a_elements() const { return m * k; }
  int64_t b_elements() const { return n * k; }
  int64_t d_elements() const { return m * n; }

  // Returns "512x4096x4096nt": m, n, k, and whether A and B are transposed (t) or not (n).
  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
           (transpose_a ? "t" : "n") + (transpose_b ? "t" : "n");
  }
};

// Products of one shape at equal distances from each other, in elements of their operands.
struct Batch {
  int64_t count = 1;
  int64_t a = 0;  // from one A to the next
  int64_t b = 0;
  int64_t d = 0;

  // Returns "" for one product, or "/48:16384,16384,65536": the count, then the distances.
  std::string name() const {
    if (count == 1) return {};
    return "/" + std::to_string(count) + ":" + std::to_string(a) + "," + std::to_string(b) + "," +
           std::to_string(d);
  }
  // Returns the elements from the first operand to the end of the last.
  //   elements: of one operand, distance: from it to the next.
  int64_t spanned(int64_t elements, int64_t distance) const {
    return (count - 1) * distance + elements;
  }
};

// A matrix as described to the library: `rows` x `columns` as stored, with a column every `stride`
// elements.
struct ColumnMajor {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
  bool transpose = false;
};

struct MatmulPlan {
  ColumnMajor first;   // our B
  ColumnMajor second;  // our A
  ColumnMajor result;  // D
};

inline MatmulPlan plan_matmul(const Product& p) {
  // row-major [rows, columns] is column-major [columns, rows]
  const auto column_major = [](int64_t rows, int64_t columns, bool transpose) {
    return ColumnMajor{columns, rows, columns, transpose};
  };
  return {p.transpose_b ? column_major(p.n, p.k, true) : column_major(p.k, p.n, false),
          p.transpose_a ? column_major(p.k, p.m, true) : column_major(p.m, p.k, false),
          column_major(p.m, p.n, false)};
}

// The three products of a layer y [samples, outputs] = x [samples, inputs] wᵀ, w [outputs, inputs].
// If `transposed`, the layer stores wᵀ [inputs, outputs] and its gradient.
struct LayerProducts {
  Product forward;  // y = x wᵀ
  Product weights;  // dw = dyᵀ x, or xᵀ dy if `transposed`
  Product data;     // dx = dy w
};

inline LayerProducts layer_products(int64_t samples, int64_t inputs, int64_t outputs,
                                    bool transposed = false) {
  if (transposed) {
    return {{samples, outputs, inputs, false, false},
            {inputs, outputs, samples, true, false},
            {samples, inputs, outputs, false, true}};
  }
  return {{samples, outputs, inputs, false, true},
          {outputs, inputs, samples, true, false},
          {samples, inputs, outputs, false, false}};
}

}  // namespace pushpull::ops::cuda
