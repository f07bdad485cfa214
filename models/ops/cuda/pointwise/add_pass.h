// The per-thread arithmetic of a sum of two tensors. Pure.
#pragma once

#include <cstdint>

#include "models/ops/cuda/flat_pass.h"

namespace pushpull::ops::cuda {

// y = a + b; y may be a or b.
template <class T, bool kPacked>
PP_HOST_DEVICE void add(const T* a, const T* b, int64_t count, int64_t block, int thread, T* y) {
  for_each_pack<kPackSize<T>>(count, block, thread, [=](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    float addends[kPackSize<T>];
    load_pack<kPacked, kPackSize<T>>(a + first, elements, values);
    load_pack<kPacked, kPackSize<T>>(b + first, elements, addends);
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) values[i] += addends[i];
    store_pack<kPacked, kPackSize<T>>(values, elements, y + first);
  });
}

}  // namespace pushpull::ops::cuda
