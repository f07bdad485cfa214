// Delay compensation of a stale gradient: the server's update of DC-ASGD-c with constant lambda
// (Zheng et al., Asynchronous Stochastic Gradient Descent with Delay Compensation, arXiv
// 1609.08326). Stateless; any thread; vectorised, the same bits at any width.
//
// A gradient g that was computed on the weights `read` is applied to the weights `now`. To first
// order the gradient at `now` is g + H (now - read); the paper approximates the Hessian H by lambda
// times the diagonal of g g^T.
#pragma once

#include <cstddef>

#include "common/update/optimizer_rule.h"

namespace pushpull {

struct DelayCompensation {
  double divisor = 1.0;  // micro-batches in the sum
  double clip = 1.0;     // factor of the mean gradient
  double lambda = 0.0;
};

// Returns the scalars of compensated_element (optimizer_rule.h).
CompensationScalars compensation_scalars(const DelayCompensation& options);

// g = sum / divisor * clip; out = g + lambda g g (now - read), element by element.
//   sum, now, read, out: n floats; out overlaps none of the others.
void compensate_delay(const DelayCompensation& options, size_t n, const float* sum,
                      const float* now, const float* read, float* out);

}  // namespace pushpull
