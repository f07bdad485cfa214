// The per-thread part of adding a vector per position, and of its gradient. Pure.
#pragma once

#include <cstdint>

#include "models/ops/add_positions.h"
#include "models/ops/cuda/flat_pass.h"

namespace pushpull::ops::cuda {

struct PositionsPass {
  static constexpr int kBatch = 8;  // samples in flight

  int64_t samples = 0;
  int64_t sample = 0;   // elements of one
  int64_t weights = 0;  // elements of w, at least `sample`
  Divider by_sample;

  explicit PositionsPass(const AddPositionsShape& shape)
      : samples(shape.samples),
        sample(shape.positions * shape.width),
        weights(shape.limit * shape.width),
        by_sample(sample) {}

  // Returns true if a pack lies within one sample, and all its addresses are aligned.
  template <class T>
  bool packed(const void* a, const void* b, const void* w) const {
    return sample % kPackSize<T> == 0 && weights % kPackSize<T> == 0 && is_aligned(a) &&
           is_aligned(b) && is_aligned(w);
  }
  PP_HOST_DEVICE int64_t place(int64_t at) const {
    return at - int64_t{by_sample.quotient(static_cast<uint32_t>(at))} * sample;
  }
};

// y = x + w; y may be x.
template <class T, bool kPacked>
PP_HOST_DEVICE void add_positions(const PositionsPass& pass, int64_t block, int thread, const T* x,
                                  const float* w, T* y) {
  constexpr int kCount = kPackSize<T>;
  const int64_t count = pass.samples * pass.sample;
  for_each_pack<kCount>(count, block, thread, [&](int64_t first, int64_t elements) {
    float values[kCount];
    float added[kCount];
    load_pack<kPacked, kCount>(x + first, elements, values);
    if constexpr (kPacked) {
      load_pack<true, kCount>(w + pass.place(first), elements, added);
    } else {
      PP_UNROLL
      for (int i = 0; i < kCount; ++i) added[i] = i < elements ? w[pass.place(first + i)] : 0.0F;
    }
    PP_UNROLL
    for (int i = 0; i < kCount; ++i) values[i] += added[i];
    store_pack<kPacked, kCount>(values, elements, y + first);
  });
}

// Computes pack `unit` of dw: the sums over the samples in rising order, times `unscale` (1 / loss
// scale); 0 behind the positions of a sample.
template <class T, bool kPacked>
PP_HOST_DEVICE void sum_positions(const PositionsPass& pass, int64_t unit, const T* dy,
                                  float unscale, float* dw) {
  constexpr int kCount = kPackSize<T>;
  const int64_t first = unit * kCount;
  if (first >= pass.weights) return;
  const int64_t summed = first < pass.sample ? pass.sample - first : 0;
  float sums[kCount] = {};
  for (int64_t n = 0; n < pass.samples && summed > 0; n += PositionsPass::kBatch) {
    float values[PositionsPass::kBatch][kCount];
    PP_UNROLL
    for (int i = 0; i < PositionsPass::kBatch; ++i) {  // all loads before the first addition
      const int64_t count = n + i < pass.samples ? summed : 0;
      load_pack<kPacked, kCount>(dy + (n + i) * pass.sample + first, count, values[i]);
    }
    PP_UNROLL
    for (int i = 0; i < PositionsPass::kBatch; ++i) {
      PP_UNROLL
      for (int j = 0; j < kCount; ++j) sums[j] += values[i][j];
    }
  }
  PP_UNROLL
  for (int j = 0; j < kCount; ++j) sums[j] *= unscale;
  store_pack<kPacked, kCount>(sums, pass.weights - first, dw + first);
}

}  // namespace pushpull::ops::cuda
