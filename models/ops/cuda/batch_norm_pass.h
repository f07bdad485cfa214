// The per-thread arithmetic of batch normalisation's kernels, between their sums over a block.
// Forward: the first kernel computes moments of each chunk, around the mean of each round while it
// is in registers: x is read once, and a large mean causes no cancellation. In the second kernel
// every block merges the moments of its channel and normalises. Backward works in the same two
// steps. Source: Ioffe & Szegedy, arXiv 1502.03167.
#pragma once

#include "models/ops/cuda/image_pass.h"

namespace pushpull::ops::cuda {

// Statistics of the latest forward, for backward. Has no initial values, because it is used in
// shared memory.
struct ChannelState {
  float mean;
  float inverse;  // 1 / sqrt(variance + epsilon)
};

// Sums over a chunk: the masked dy, and the masked dy times (x - mean).
struct GradientSums {
  float dy = 0.0F;
  float product = 0.0F;
};

template <class T>
PP_HOST_DEVICE float squares_of(const float (&values)[kPerThread], float mean, uint32_t first,
                                uint32_t last, uint32_t thread) {
  float sum = 0.0F;
  PP_UNROLL
  for (int i = 0; i < kPerThread; ++i) {
    const float apart = values[i] - mean;
    sum += place_of<T>(first, thread, i) < last ? apart * apart : 0.0F;
  }
  return sum;
}

// Merges the moments of a channel's chunks. Called by a whole warp.
PP_HOST_DEVICE inline Moments merge_chunks(const Moments* chunks, uint32_t count, double places) {
  const WarpSum warp_sum{count};
  const double sum = warp_sum([=](uint32_t i) { return chunks[i].count * chunks[i].mean; });
  const double mean = sum / places;
  const double squares = warp_sum([=](uint32_t i) {
    const double apart = chunks[i].mean - mean;
    return chunks[i].squares + chunks[i].count * (apart * apart);
  });
  return {places, mean, squares};
}

PP_HOST_DEVICE inline ChannelState state_of(const Moments& moments, float epsilon) {
  return {static_cast<float>(moments.mean),
          inverse_deviation(moments.squares / moments.count, epsilon)};
}
PP_HOST_DEVICE inline float unbiased_variance(const Moments& moments) {
  return static_cast<float>(moments.squares / (moments.count - 1.0));
}

PP_HOST_DEVICE inline Normal normal_of(const ChannelState& state, float scale, float shift,
                                       bool relu) {
  return {state.mean, state.inverse * scale, shift, relu};
}

PP_HOST_DEVICE inline void normalise(const Normal& normal, float (&values)[kPerThread]) {
  PP_UNROLL
  for (int i = 0; i < kPerThread; ++i) values[i] = normal(values[i]);
}

// Adds to `sums`; elements beyond the last place have dy = 0.
template <class T>
PP_HOST_DEVICE void add_gradients(const Normal& normal, const float (&x)[kPerThread],
                                  const float (&dy)[kPerThread], GradientSums& sums) {
  PP_UNROLL
  for (int i = 0; i < kPerThread; ++i) {
    const float gradient = masked<T>(normal, x[i], dy[i]);
    sums.dy += gradient;
    sums.product += gradient * (x[i] - normal.mean);
  }
}

struct ChannelGradient {
  float scale = 0.0F;
  float shift = 0.0F;
  NormalGradient of_x;
};
// Called by a whole warp.
//   unscale: 1 / loss scale.
PP_HOST_DEVICE inline ChannelGradient merge_gradients(const GradientSums* chunks, uint32_t count,
                                                      double places, const ChannelState& state,
                                                      float unscale) {
  const WarpSum warp_sum{count};
  const double dy = warp_sum([=](uint32_t i) { return static_cast<double>(chunks[i].dy); });
  const double product =
      warp_sum([=](uint32_t i) { return static_cast<double>(chunks[i].product); });
  const double inverse = state.inverse;
  const NormalGradient of_x{static_cast<float>(dy / places),
                            static_cast<float>(product * inverse * inverse / places)};
  return {static_cast<float>(product * inverse * unscale), static_cast<float>(dy * unscale), of_x};
}

// Replaces x by dx.
template <class T>
PP_HOST_DEVICE void input_gradients(const Normal& normal, const NormalGradient& of_x,
                                    const float (&dy)[kPerThread], float (&x)[kPerThread]) {
  PP_UNROLL
  for (int i = 0; i < kPerThread; ++i) {
    x[i] = of_x(normal, x[i], masked<T>(normal, x[i], dy[i]));
  }
}

}  // namespace pushpull::ops::cuda
