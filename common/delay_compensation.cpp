#include "common/delay_compensation.h"

#include "common/simd.h"

namespace pushpull {

namespace {

PUSHPULL_SIMD void compensate(float divisor, float clip, float lambda, size_t n, const float* sum,
                              const float* now, const float* read, float* out) {
  PUSHPULL_ELEMENTWISE
  for (size_t i = 0; i < n; ++i) {
    const float g = sum[i] / divisor * clip;
    out[i] = g + lambda * g * g * (now[i] - read[i]);
  }
}

}  // namespace

void compensate_delay(const DelayCompensation& options, size_t n, const float* sum,
                      const float* now, const float* read, float* out) {
  compensate(static_cast<float>(options.divisor), static_cast<float>(options.clip),
             static_cast<float>(options.lambda), n, sum, now, read, out);
}

}  // namespace pushpull
