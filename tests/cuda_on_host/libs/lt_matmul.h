// A product as the stand-in for cuBLASLt reads it from descriptors, and the function that computes
// it. Copied at the call: descriptors may be destroyed while it runs.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

#include "tests/cuda_on_host/libs/numbers.h"

namespace pushpull::cuda_on_host {

// Column-major; `stride` elements from one column to the next.
struct Matrix {
  Number type = Number::kF32;
  size_t rows = 0;
  size_t columns = 0;
  size_t stride = 0;

  // Whether a vector load of `bytes` may run along each column.
  bool columns_are_aligned(size_t bytes) const { return stride * bytes_of(type) % bytes == 0; }
};

// D [m, n] = alpha op(A) [m, k] op(B) [k, n] + beta C, then the epilogue.
struct Problem {
  Matrix a, b, c, d;
  bool transpose_a = false;
  bool transpose_b = false;
  Rounding rounding = Rounding::kNone;  // of f32 operands
  bool bias = false;
  bool relu = false;
  const void* bias_at = nullptr;  // one per row, in D's type
  size_t m = 0;
  size_t n = 0;
  size_t k = 0;
};

// Cuts k into slices and adds their sums at the end.
struct Algorithm {
  uint64_t id = 0;
  size_t slices = 1;
  bool from_the_end = false;
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  size_t alignment = 1;      // bytes, of A, B, C and D; 1: of an element
  size_t min_workspace = 0;  // bytes

  bool sums_in_any_order() const { return reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE; }
  size_t workspace(const Problem& problem) const;
  // Whether the layouts fit, for any pointers.
  bool fits(const Problem& problem) const;
};

struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  void* workspace = nullptr;
  float alpha = 1.0F;
  float beta = 0.0F;
};

void multiply(const Problem& problem, const Algorithm& algorithm, const Operands& operands);

}  // namespace pushpull::cuda_on_host
