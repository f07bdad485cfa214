#include "common/update/delay_compensation.h"

#include "common/base/simd.h"

namespace pushpull {

namespace {

PUSHPULL_SIMD void compensate(CompensationScalars c, size_t n, const float* sum, const float* now,
                              const float* read, float* out) {
  PUSHPULL_ELEMENTWISE
  for (size_t i = 0; i < n; ++i) out[i] = compensated_element(c, sum[i], now[i], read[i]);
}

}  // namespace

CompensationScalars compensation_scalars(const DelayCompensation& options) {
  return {static_cast<float>(options.divisor), static_cast<float>(options.clip),
          static_cast<float>(options.lambda)};
}

void compensate_delay(const DelayCompensation& options, size_t n, const float* sum,
                      const float* now, const float* read, float* out) {
  compensate(compensation_scalars(options), n, sum, now, read, out);
}

}  // namespace pushpull
