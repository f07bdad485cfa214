// The per-thread arithmetic of dropout. Each pack of four elements has one block of random words,
// which backward draws again. Pure.
#pragma once

#include <cstdint>

#include "common/base/random.h"
#include "models/ops/cuda/flat_pass.h"
#include "models/ops/dropout.h"

namespace pushpull::ops::cuda {

// y = x * factor where the element's word is at least rule.least, and 0 elsewhere; y may be x.
template <class T, bool kPacked>
PP_HOST_DEVICE void drop(uint64_t key, const DropoutRule& rule, const T* x, int64_t count,
                         int64_t block, int thread, T* y) {
  constexpr int kWords = 4;
  static_assert(kPackSize<T> % kWords == 0);
  for_each_pack<kPackSize<T>>(count, block, thread, [=](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    load_pack<kPacked, kPackSize<T>>(x + first, elements, values);
    PP_UNROLL
    for (int part = 0; part < kPackSize<T> / kWords; ++part) {
      const PhiloxBlock words = dropout_block(key, static_cast<uint64_t>(first / kWords + part));
      PP_UNROLL
      for (int i = 0; i < kWords; ++i) {
        float& value = values[part * kWords + i];
        value = words.of[i] >= rule.least ? value * rule.factor : 0.0F;
      }
    }
    store_pack<kPacked, kPackSize<T>>(values, elements, y + first);
  });
}

}  // namespace pushpull::ops::cuda
