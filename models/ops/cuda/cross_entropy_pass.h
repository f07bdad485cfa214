// The per-thread arithmetic of softmax with cross-entropy. A group of `width` threads processes a
// row; each thread handles every `width`-th class. Sums are f64 over f32 exponentials, as on the
// CPU: the probability of a certain class is exactly 1.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/ops/arithmetic.h"
#include "models/ops/cuda/flat_pass.h"

namespace pushpull::ops::cuda {

constexpr int64_t kWarpClasses = 1024;  // up to here a warp processes a row, beyond it a block

template <class T>
PP_HOST_DEVICE float top_of(const T* logits, int64_t classes, int thread, int width) {
  float top = -INFINITY;
  for (int64_t m = thread; m < classes; m += width) {
    const float logit = to_float(logits[m]);
    top = logit > top ? logit : top;
  }
  return top;
}

// Sets shares[m] = e^(logit - top) and returns their sum.
template <class T>
PP_HOST_DEVICE double exponentials(const T* logits, int64_t classes, float top, int thread,
                                   int width, float* shares) {
  double sum = 0.0;
  for (int64_t m = thread; m < classes; m += width) {
    shares[m] = expf(to_float(logits[m]) - top);
    sum += static_cast<double>(shares[m]);
  }
  return sum;
}

PP_HOST_DEVICE inline void divide(int64_t classes, double sum, int thread, int width,
                                  float* shares) {
  for (int64_t m = thread; m < classes; m += width) {
    shares[m] = static_cast<float>(static_cast<double>(shares[m]) / sum);
  }
}

PP_HOST_DEVICE inline float loss_of(float top, float logit, double sum) {
  return static_cast<float>(static_cast<double>(top) - static_cast<double>(logit) + log(sum));
}

// Returns the derivative of the loss by a logit, times weight: share - 1 at the label, share
// elsewhere.
PP_HOST_DEVICE inline float logit_gradient(float share, bool is_label, float weight) {
  return (is_label ? share - 1.0F : share) * weight;
}

// Computes a thread's part of dlogits [N, M] (`count` elements).
//   weight: loss scale / N.
template <class T, bool kPacked>
PP_HOST_DEVICE void logit_gradients(const float* shares, const int32_t* labels,
                                    const Divider& by_classes, int64_t count, float weight,
                                    int64_t block, int thread, T* dlogits) {
  for_each_pack<kPackSize<T>>(count, block, thread, [&](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    load_pack<kPacked, kPackSize<T>>(shares + first, elements, values);
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) {
      if (i >= elements) continue;
      const auto at = static_cast<uint32_t>(first + i);
      const uint32_t row = by_classes.quotient(at);
      const bool is_label = at - row * by_classes.divisor == static_cast<uint32_t>(labels[row]);
      values[i] = logit_gradient(values[i], is_label, weight);
    }
    store_pack<kPacked, kPackSize<T>>(values, elements, dlogits + first);
  });
}

// The largest logit; the lowest class among equal ones.
struct Best {  // no initial values, because it is used in shared memory
  float logit;
  int32_t label;
  PP_HOST_DEVICE void meet(const Best& other) {
    const bool wins = other.logit > logit || (other.logit == logit && other.label < label);
    logit = wins ? other.logit : logit;
    label = wins ? other.label : label;
  }
};
template <class T>
PP_HOST_DEVICE Best best_of(const T* logits, int64_t classes, int thread, int width) {
  Best best{-INFINITY, INT32_MAX};
  if (thread < classes) best = {to_float(logits[thread]), thread};
  for (int64_t m = thread + width; m < classes; m += width) {
    best.meet({to_float(logits[m]), static_cast<int32_t>(m)});
  }
  return best;
}

}  // namespace pushpull::ops::cuda
