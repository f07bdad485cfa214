// How a kernel traverses a tensor as a flat array: each block takes the elements of a round, each
// thread packs of them. For elementwise computations.
#pragma once

#include <cstdint>

#include "models/ops/arithmetic.h"

namespace pushpull::ops::cuda {

inline int64_t flat_blocks(int64_t count) { return pieces(count, kRound); }

// Calls visit(first element, number of elements) for each pack of a thread; the number is at most
// the pack's size.
template <int kLanes, class Visit>
PP_HOST_DEVICE void for_each_pack(int64_t count, int64_t block, int thread, const Visit& visit) {
  PP_UNROLL
  for (int i = 0; i < kPerThread / kLanes; ++i) {
    const int64_t first = block * kRound + (int64_t{i} * kBlock + thread) * kLanes;
    if (first < count) visit(first, count - first < kLanes ? count - first : int64_t{kLanes});
  }
}

// to = from, converted; eight elements at once, so that a pack of the shorter type is whole.
template <class From, class To, bool kPacked>
PP_HOST_DEVICE void convert(const From* from, int64_t count, int64_t block, int thread, To* to) {
  for_each_pack<8>(count, block, thread, [=](int64_t first, int64_t lanes) {
    float values[8];
    load_lanes<kPacked, 8>(from + first, lanes, values);
    store_lanes<kPacked, 8>(values, lanes, to + first);
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
  const bool whole = by_area.divisor % kLanes<T> == 0;  // a pack lies within one channel
  for_each_pack<kLanes<T>>(count, block, thread, [&](int64_t first, int64_t lanes) {
    float values[kLanes<T>];
    load_lanes<kPacked, kLanes<T>>(y + first, lanes, values);
    float addend = bias(first);
    PP_UNROLL
    for (int i = 0; i < kLanes<T>; ++i) {
      if (!whole && i > 0 && i < lanes) addend = bias(first + i);
      values[i] += addend;
    }
    store_lanes<kPacked, kLanes<T>>(values, lanes, y + first);
  });
}

}  // namespace pushpull::ops::cuda
