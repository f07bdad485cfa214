#include "models/ops/cpu/softmax_row.h"

#include <algorithm>

namespace pushpull::ops::cpu {

namespace {

constexpr int64_t kSumBlock = 256;

// Fills e[count..] with zeros and returns the sum of the block.
PUSHPULL_INLINE double block_sum(float* e, int64_t count) {
  for (int64_t i = count; i < kSumBlock; ++i) e[i] = 0.0F;
  double sums[kSumBlock / 2];
  for (int64_t i = 0; i < kSumBlock / 2; ++i) {
    sums[i] = static_cast<double>(e[i]) + static_cast<double>(e[i + kSumBlock / 2]);
  }
  for (int64_t reach = kSumBlock / 4; reach > 0; reach /= 2) {
    for (int64_t i = 0; i < reach; ++i) sums[i] += sums[i + reach];
  }
  return sums[0];
}

}  // namespace

PUSHPULL_SIMD float largest(const float* x, int64_t count) {
  constexpr int64_t kLanes = 16;
  float lanes[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) lanes[l] = x[std::min(l, count - 1)];
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  }
  for (; i < count; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  for (int64_t reach = kLanes / 2; reach > 0; reach /= 2) {
    for (int64_t l = 0; l < reach; ++l) {
      lanes[l] = lanes[l + reach] > lanes[l] ? lanes[l + reach] : lanes[l];
    }
  }
  return lanes[0];
}

PUSHPULL_SIMD int64_t first_equal(const float* x, int64_t count, float value) {
  for (int64_t first = 0; first < count; first += kSumBlock) {
    const int64_t end = std::min(first + kSumBlock, count);
    int32_t equal = 0;
    for (int64_t i = first; i < end; ++i) equal += x[i] == value ? 1 : 0;
    if (equal == 0) continue;
    return std::find(x + first, x + end, value) - x;
  }
  return 0;
}

PUSHPULL_SIMD double exp_sum(const float* x, int64_t count, float top) {
  float e[kSumBlock];
  double sum = 0.0;
  for (int64_t first = 0; first < count; first += kSumBlock) {
    const int64_t here = std::min(kSumBlock, count - first);
    for (int64_t i = 0; i < here; ++i) e[i] = fast_exp(x[first + i] - top);
    sum += block_sum(e, here);
  }
  return sum;
}

PUSHPULL_SIMD double exp_row(const float* x, int64_t count, float top, float* e) {
  float block[kSumBlock];
  double sum = 0.0;
  for (int64_t first = 0; first < count; first += kSumBlock) {
    const int64_t here = std::min(kSumBlock, count - first);
    for (int64_t i = 0; i < here; ++i) block[i] = fast_exp(x[first + i] - top);
    for (int64_t i = 0; i < here; ++i) e[first + i] = block[i];
    sum += block_sum(block, here);
  }
  return sum;
}

}  // namespace pushpull::ops::cpu
