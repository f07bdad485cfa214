// The arithmetic of the kernels in models/ops/cuda: the values per element, and the splits of sums.
// Functions of shapes and numbers only, which tests run on the host. A split depends on neither
// device nor pointers: equal shapes give equal bits (P1).
//
// A block is kBlock threads. A round is the elements that a block processes at once: kPerThread per
// thread, all in registers. A chunk is the elements that one block sums: one or several rounds.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/base/host_device.h"
#include "models/ops/number.h"

namespace pushpull::ops {

constexpr int kWarp = 32;
constexpr int kBlock = 256;
constexpr int kPerThread = 16;
constexpr int64_t kRound = int64_t{kBlock} * kPerThread;
constexpr int64_t kWarpRow = 1024;  // up to here a warp processes a row, beyond it a block

PP_HOST_DEVICE constexpr int64_t pieces(int64_t whole, int64_t piece) {
  return (whole + piece - 1) / piece;
}

// Computes n / divisor for n < 2^31 by multiplication. Source: Granlund & Montgomery, PLDI 1994.
struct Divider {
  uint32_t divisor = 1;
  uint32_t multiplier = 1;
  uint32_t shift = 0;

  Divider() = default;
  explicit Divider(int64_t by) : divisor(static_cast<uint32_t>(by)) {
    while ((uint64_t{1} << shift) < divisor) ++shift;
    const uint64_t above = (uint64_t{1} << shift) - divisor;
    multiplier = static_cast<uint32_t>((above << 32) / divisor + 1);
  }
  PP_HOST_DEVICE uint32_t quotient(uint32_t n) const {
    const auto high = static_cast<uint32_t>((uint64_t{n} * multiplier) >> 32);
    return (high + n) >> shift;
  }
};

// How to sum many elements: one block sums a chunk in f32; the chunks are added in order in f64.
struct ReductionPlan {
  int64_t chunk = 0;  // elements
  int64_t chunks = 0;
};

// Sums over the rows of a matrix, per column. Few rows are one chunk, which saves a second kernel;
// otherwise there are enough chunks to fill a device, and few enough to be added by one block.
inline ReductionPlan plan_rows(int64_t rows) {
  constexpr int64_t kAlone = 128;
  constexpr int64_t kChunk = 64;
  constexpr int64_t kMaxChunks = 1024;
  if (rows <= kAlone) return {rows, 1};
  const int64_t chunk = kChunk * pieces(rows, kChunk * kMaxChunks);
  return {chunk, pieces(rows, chunk)};
}

// Sums over the `places` elements of a channel. A chunk is a whole number of rounds.
inline ReductionPlan plan_channel(int64_t places) {
  constexpr int64_t kMaxChunks = 512;  // each block of the following kernel reads all of them
  const int64_t chunk = kRound * pieces(places, kRound * kMaxChunks);
  return {chunk, pieces(places, chunk)};
}

// values[0] becomes the sum, in the order of a warp's tree: the upper half is added onto the lower
// half, repeatedly.
template <class T>
void tree_sum(T* values, int count) {
  for (int reach = count / 2; reach > 0; reach /= 2) {
    for (int i = 0; i < reach; ++i) values[i] += values[i + reach];
  }
}

// Returns the sum of part(0), ..., part(count - 1) over the lanes of a warp, in all lanes. The host
// performs the same additions.
struct WarpSum {
  uint32_t count = 0;

  template <class Part>
  PP_HOST_DEVICE double operator()(const Part& part) const {
#if defined(__CUDA_ARCH__)
    double sum = of_lane(threadIdx.x % kWarp, part);
    PP_UNROLL
    for (int reach = kWarp / 2; reach > 0; reach /= 2) sum += __shfl_xor_sync(~0U, sum, reach);
    return sum;
#else
    double lanes[kWarp];
    for (uint32_t lane = 0; lane < kWarp; ++lane) lanes[lane] = of_lane(lane, part);
    tree_sum(lanes, kWarp);
    return lanes[0];
#endif
  }

 private:
  template <class Part>
  PP_HOST_DEVICE double of_lane(uint32_t lane, const Part& part) const {
    double sum = 0.0;
    for (uint32_t i = lane; i < count; i += kWarp) sum += part(i);
    return sum;
  }
};

// Returns max(x, 0), but NaN for NaN, so that it is detected.
PP_HOST_DEVICE inline float relu(float x) { return x <= 0.0F ? 0.0F : x; }
// Derivative of ReLU, 0 at 0 as in PyTorch. A multiplication would propagate the NaN of 0 * inf.
PP_HOST_DEVICE inline float relu_gradient(float y, float dy) { return y > 0.0F ? dy : 0.0F; }

// Count, mean and sum of squared deviations. Source: Chan, Golub & LeVeque, 1979.
struct Moments {
  double count = 0.0;
  double mean = 0.0;
  double squares = 0.0;
};
PP_HOST_DEVICE inline Moments merge(const Moments& a, const Moments& b) {
  if (a.count == 0.0) return b;
  if (b.count == 0.0) return a;
  const double count = a.count + b.count;
  const double apart = b.mean - a.mean;
  return {count, a.mean + apart * (b.count / count),
          a.squares + b.squares + apart * apart * (a.count * b.count / count)};
}

// y = (x - mean) * slope + shift, then max(y, 0) if relu; slope = scale / deviation.
struct Normal {
  float mean = 0.0F;
  float slope = 0.0F;
  float shift = 0.0F;
  bool relu = false;

  PP_HOST_DEVICE float operator()(float x) const {
    const float y = (x - mean) * slope + shift;
    return relu ? ops::relu(y) : y;
  }
};

PP_HOST_DEVICE inline float inverse_deviation(double variance, float epsilon) {
  return static_cast<float>(1.0 / sqrt(variance + static_cast<double>(epsilon)));
}

// Returns dy, or 0 if relu and the stored y of forward is not positive.
template <class T>
PP_HOST_DEVICE float masked(const Normal& normal, float x, float dy) {
  return normal.relu ? relu_gradient(rounded<T>(normal(x)), dy) : dy;
}

// dx = slope * (dy - mean(dy) - (x - mean) * lean).
struct NormalGradient {  // no initial values: in shared memory every thread would write them
  float mean_dy;
  float lean;  // mean of dy * (x - mean), divided by the variance
  PP_HOST_DEVICE float operator()(const Normal& normal, float x, float dy) const {
    return normal.slope * (dy - mean_dy - (x - normal.mean) * lean);
  }
};

}  // namespace pushpull::ops
