// Loops over a row of scores, for softmax: the largest, exponentials and their sum. Every vector
// width and every alignment gives the same bits. Any thread.
#pragma once

#include <cstdint>

#include "common/base/simd.h"
#include "models/ops/scalar.h"

namespace pushpull::ops::cpu {

// Returns exponential(x), but 0 below -87. Vectorises in files with the flags of scalar.h.
PUSHPULL_INLINE float fast_exp(float x) { return x < -87.0F ? 0.0F : exponential(x); }

// Returns the largest of count > 0 numbers. A NaN among the first 64 may be the result; later ones
// are skipped.
float largest(const float* x, int64_t count);
// Returns the index of the first element that equals `value`, or 0.
int64_t first_equal(const float* x, int64_t count, float value);

// Returns the sum of fast_exp(x[i] - top): sixteen partial sums in f64, combined in a fixed tree.
double exp_sum(const float* x, int64_t count, float top);
// Also writes the exponentials; e may be x.
double exp_row(const float* x, int64_t count, float top, float* e);
// Writes fast_exp(x[i] - top) factor - less; dx may be x.
void exp_gradient(const float* x, int64_t count, float top, float factor, float less, float* dx);

}  // namespace pushpull::ops::cpu
