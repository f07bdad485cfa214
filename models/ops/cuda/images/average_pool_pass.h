// The per-thread arithmetic of global average pooling: a warp sums one plane in f32. Which lane adds
// which elements depends on the shape only; an unaligned image takes more loads. Pure.
#pragma once

#include <cstdint>

#include "models/ops/cuda/flat_pass.h"
#include "models/ops/ops.h"

namespace pushpull::ops::cuda {

// Returns a lane's sum of a plane of `area` elements.
//   kVector: elements that a lane adds in a row: a pack if planes are whole packs, otherwise 1.
//   kPacked: planes are aligned to 16 bytes.
template <int kVector, bool kPacked, class T>
PP_HOST_DEVICE float sum_of_lane(const T* plane, int64_t area, int lane) {
  float sum = 0.0F;
  for (int64_t first = int64_t{lane} * kVector; first < area; first += int64_t{kWarp} * kVector) {
    float values[kVector];
    load_pack<kPacked, kVector>(plane + first, kVector, values);
    PP_UNROLL
    for (int i = 0; i < kVector; ++i) sum += values[i];
  }
  return sum;
}

// dx = dy / area in every element of a plane; flat over all planes.
template <class T, bool kPacked>
PP_HOST_DEVICE void spread_means(const Divider& by_area, const T* dy, int64_t count, int64_t block,
                                 int thread, T* dx) {
  for_each_pack<kPackSize<T>>(count, block, thread, [&](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) {
      const int64_t at = i < elements ? first + i : first;
      const uint32_t plane = by_area.quotient(static_cast<uint32_t>(at));
      values[i] = to_float(dy[plane]) / static_cast<float>(by_area.divisor);
    }
    store_pack<kPacked, kPackSize<T>>(values, elements, dx + first);
  });
}

}  // namespace pushpull::ops::cuda
