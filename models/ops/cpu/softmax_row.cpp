#include "models/ops/cpu/softmax_row.h"

#include <algorithm>

#include "models/ops/arithmetic.h"

namespace pushpull::ops::cpu {

namespace {

constexpr int64_t kBlock = 256;  // a multiple of kSumLanes
constexpr int64_t kSumLanes = 16;

PUSHPULL_INLINE void add_to_lanes(const float* e, int64_t count, double* lanes) {
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (int64_t l = 0; l < kSumLanes; ++l) lanes[l] += static_cast<double>(e[i + l]);
  }
  for (int64_t l = 0; i + l < count; ++l) lanes[l] += static_cast<double>(e[i + l]);
}

// Finds the largest in lanes: more of them hide the latency, fewer cost less at the end.
template <int64_t kLanes>
PUSHPULL_INLINE float largest_in(const float* x, int64_t count) {
  float lanes[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) lanes[l] = x[std::min(l, count - 1)];
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  }
  for (int64_t l = 0; i + l < count; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) {
      lanes[l] = lanes[l + half] > lanes[l] ? lanes[l + half] : lanes[l];
    }
  }
  return lanes[0];
}

}  // namespace

PUSHPULL_SIMD float largest(const float* x, int64_t count) {
  return count < kBlock ? largest_in<kSumLanes>(x, count) : largest_in<4 * kSumLanes>(x, count);
}

PUSHPULL_SIMD int64_t first_equal(const float* x, int64_t count, float value) {
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t end = std::min(first + kBlock, count);
    int32_t equal = 0;
    for (int64_t i = first; i < end; ++i) equal += x[i] == value ? 1 : 0;
    if (equal > 0) return std::find(x + first, x + end, value) - x;
  }
  return 0;
}

PUSHPULL_SIMD double exp_sum(const float* x, int64_t count, float top) {
  float e[kBlock];
  double lanes[kSumLanes] = {};
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t here = std::min(kBlock, count - first);
    for (int64_t i = 0; i < here; ++i) e[i] = fast_exp(x[first + i] - top);
    add_to_lanes(e, here, lanes);
  }
  tree_sum(lanes, kSumLanes);
  return lanes[0];
}

PUSHPULL_SIMD double exp_row(const float* x, int64_t count, float top, float* e) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) e[i] = fast_exp(x[i] - top);
  double lanes[kSumLanes] = {};
  add_to_lanes(e, count, lanes);
  tree_sum(lanes, kSumLanes);
  return lanes[0];
}

PUSHPULL_SIMD void exp_gradient(const float* x, int64_t count, float top, float factor, float less,
                                float* dx) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) dx[i] = fast_exp(x[i] - top) * factor - less;
}

}  // namespace pushpull::ops::cpu
