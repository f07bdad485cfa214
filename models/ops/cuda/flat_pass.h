// Traverses a tensor as a flat array: each block processes the elements of a round, each thread
// some packs of them. For elementwise computations.
#pragma once

#include <cstdint>

#include "models/ops/arithmetic.h"

namespace pushpull::ops::cuda {

inline int64_t flat_blocks(int64_t count) { return pieces(count, kRound); }

// Calls visit(first element, number of elements) for each pack of a thread; the number is at most
// the pack's size.
template <int kPackSize, class Visit>
PP_HOST_DEVICE void for_each_pack(int64_t count, int64_t block, int thread, const Visit& visit) {
  PP_UNROLL
  for (int i = 0; i < kPerThread / kPackSize; ++i) {
    const int64_t first = block * kRound + (int64_t{i} * kBlock + thread) * kPackSize;
    if (first < count) visit(first, count - first < kPackSize ? count - first : int64_t{kPackSize});
  }
}

// to = from, converted; eight elements at once, so that a pack of the shorter type is whole.
template <class From, class To, bool kPacked>
PP_HOST_DEVICE void convert(const From* from, int64_t count, int64_t block, int thread, To* to) {
  for_each_pack<8>(count, block, thread, [=](int64_t first, int64_t elements) {
    float values[8];
    load_pack<kPacked, 8>(from + first, elements, values);
    store_pack<kPacked, 8>(values, elements, to + first);
  });
}

// y [N, C, H, W] += b [C].
template <class T, bool kPacked>
PP_HOST_DEVICE void add_channels(const Divider& by_area, const Divider& by_channels, int64_t count,
                                 int64_t block, int thread, const float* b, T* y) {
  const auto bias = [&](int64_t at) {
    const uint32_t plane = by_area.quotient(static_cast<uint32_t>(at));
    return b[plane - by_channels.quotient(plane) * by_channels.divisor];
  };
  const bool whole = by_area.divisor % kPackSize<T> == 0;  // a pack lies within one channel
  for_each_pack<kPackSize<T>>(count, block, thread, [&](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    load_pack<kPacked, kPackSize<T>>(y + first, elements, values);
    float addend = bias(first);
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) {
      if (!whole && i > 0 && i < elements) addend = bias(first + i);
      values[i] += addend;
    }
    store_pack<kPacked, kPackSize<T>>(values, elements, y + first);
  });
}

}  // namespace pushpull::ops::cuda
