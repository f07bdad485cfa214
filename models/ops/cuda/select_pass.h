// The per-thread part of a selection: copies of activations, without arithmetic. Pure.
#pragma once

#include <cstdint>

#include "models/ops/cuda/flat_pass.h"
#include "models/ops/select.h"

namespace pushpull::ops::cuda {

struct SelectPass {
  SelectShape shape;
  Divider by_inner;
  Divider by_slice;  // the size * inner elements of one outer index

  explicit SelectPass(const SelectShape& given)
      : shape(given), by_inner(given.inner), by_slice(given.size * given.inner) {}

  // Returns true if a pack lies within one slice, and all its addresses are aligned.
  template <class T>
  bool packed(const void* a, const void* b) const {
    return shape.inner % kPackSize<T> == 0 && is_aligned(a) && is_aligned(b);
  }
  // Returns the place in x of element `at` of y.
  PP_HOST_DEVICE int64_t source(int64_t at) const {
    const int64_t a = by_inner.quotient(static_cast<uint32_t>(at));
    return (a * shape.size + shape.index) * shape.inner + (at - a * shape.inner);
  }
  // Returns the place in dy of element `at` of dx, or -1 if that is 0.
  PP_HOST_DEVICE int64_t gradient_source(int64_t at) const {
    const int64_t a = by_slice.quotient(static_cast<uint32_t>(at));
    const int64_t of_slice = at - a * by_slice.divisor;
    const int64_t b = by_inner.quotient(static_cast<uint32_t>(of_slice));
    return b == shape.index ? a * shape.inner + (of_slice - b * shape.inner) : -1;
  }
};

template <class T, bool kPacked>
PP_HOST_DEVICE void select(const SelectPass& pass, int64_t block, int thread, const T* x, T* y) {
  const int64_t count = pass.shape.outer * pass.shape.inner;
  for_each_pack<kPackSize<T>>(count, block, thread, [&](int64_t first, int64_t elements) {
    if constexpr (kPacked) {
      store_words(load_words<4>(x + pass.source(first)), y + first);
    } else {
      for (int64_t i = 0; i < elements; ++i) y[first + i] = x[pass.source(first + i)];
    }
  });
}

template <class T, bool kPacked>
PP_HOST_DEVICE void select_gradient(const SelectPass& pass, int64_t block, int thread, const T* dy,
                                    T* dx) {
  const int64_t count = pass.shape.outer * pass.shape.size * pass.shape.inner;
  for_each_pack<kPackSize<T>>(count, block, thread, [&](int64_t first, int64_t elements) {
    if constexpr (kPacked) {
      const int64_t from = pass.gradient_source(first);
      store_words(from < 0 ? Words<4>{} : load_words<4>(dy + from), dx + first);
    } else {
      for (int64_t i = 0; i < elements; ++i) {
        const int64_t from = pass.gradient_source(first + i);
        dx[first + i] = from < 0 ? from_float<T>(0.0F) : dy[from];
      }
    }
  });
}

}  // namespace pushpull::ops::cuda
