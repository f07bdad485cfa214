// The per-thread arithmetic of activation functions, sums and dropout. Traverses tensors as flat_pass.h
// does. Pure.
#pragma once

#include <cstdint>

#include "common/base/random.h"
#include "models/ops/cuda/flat_pass.h"
#include "models/ops/pointwise.h"
#include "models/ops/scalar.h"

namespace pushpull::ops::cuda {

// The per-thread arithmetic of dropout. Each pack of four elements has one block of random words,
// which backward draws again. Pure.

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

// The per-thread arithmetic of a sum of two tensors. Pure.

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

// y = f(x); y may be x.
template <class F, class T, bool kPacked>
PP_HOST_DEVICE void activate(const T* x, int64_t count, int64_t block, int thread, T* y) {
  for_each_pack<kPackSize<T>>(count, block, thread, [=](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    load_pack<kPacked, kPackSize<T>>(x + first, elements, values);
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) values[i] = F::value(values[i]);
    store_pack<kPacked, kPackSize<T>>(values, elements, y + first);
  });
}

// dx = dy f'(x); dx may be dy.
//   from: x, or y if F::kFromOutput.
template <class F, class T, bool kPacked>
PP_HOST_DEVICE void activate_gradients(const T* from, const T* dy, int64_t count, int64_t block,
                                       int thread, T* dx) {
  for_each_pack<kPackSize<T>>(count, block, thread, [=](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    float gradients[kPackSize<T>];
    load_pack<kPacked, kPackSize<T>>(from + first, elements, values);
    load_pack<kPacked, kPackSize<T>>(dy + first, elements, gradients);
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) gradients[i] = F::gradient(values[i], gradients[i]);
    store_pack<kPacked, kPackSize<T>>(gradients, elements, dx + first);
  });
}

// Calls run(F()) with the function's arithmetic.
template <class Run>
auto with_function(Function function, const Run& run) {
  switch (function) {
    case Function::kRelu:
      return run(ReluFunction());
    case Function::kTanh:
      return run(TanhFunction());
    case Function::kGeluErf:
      return run(GeluErfFunction());
    case Function::kGeluTanh:
      break;
  }
  return run(GeluTanhFunction());
}

}  // namespace pushpull::ops::cuda
