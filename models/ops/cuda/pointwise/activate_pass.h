// The per-thread arithmetic of activation functions. Traverses tensors as flat_pass.h does. Pure.
#pragma once

#include <cstdint>

#include "models/ops/activate.h"
#include "models/ops/cuda/flat_pass.h"
#include "models/ops/scalar/activation.h"

namespace pushpull::ops::cuda {

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
