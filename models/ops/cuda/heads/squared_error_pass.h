// The per-thread arithmetic of squared errors. Pure.
#pragma once

#include <cstdint>

#include "models/ops/cuda/flat_pass.h"

namespace pushpull::ops::cuda {

// y = (x - target)^2; target and y are f32.
template <class T, bool kPacked>
PP_HOST_DEVICE void squares(const T* x, const float* target, int64_t count, int64_t block,
                            int thread, float* y) {
  for_each_pack<kPackSize<T>>(count, block, thread, [=](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    float targets[kPackSize<T>];
    load_pack<kPacked, kPackSize<T>>(x + first, elements, values);
    load_pack<kPacked, kPackSize<T>>(target + first, elements, targets);
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) {
      values[i] = (values[i] - targets[i]) * (values[i] - targets[i]);
    }
    store_pack<kPacked, kPackSize<T>>(values, elements, y + first);
  });
}

// dx = (x - target) * (2 scale); dx may be x.
template <class T, bool kPacked>
PP_HOST_DEVICE void square_gradients(const T* x, const float* target, int64_t count, float scale,
                                     int64_t block, int thread, T* dx) {
  for_each_pack<kPackSize<T>>(count, block, thread, [=](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    float targets[kPackSize<T>];
    load_pack<kPacked, kPackSize<T>>(x + first, elements, values);
    load_pack<kPacked, kPackSize<T>>(target + first, elements, targets);
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) values[i] = (values[i] - targets[i]) * (2.0F * scale);
    store_pack<kPacked, kPackSize<T>>(values, elements, dx + first);
  });
}

}  // namespace pushpull::ops::cuda
