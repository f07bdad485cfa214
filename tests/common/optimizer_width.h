// common/update/optimizer.cpp and common/update/delay_compensation.cpp compiled once per
// instruction set, so that a test can compare them on one machine; the library's own dispatch runs
// only the widest.
#pragma once

#include <cstddef>
#include <span>

#include "common/update/delay_compensation.h"
#include "common/update/optimizer.h"

namespace pushpull {

#define PUSHPULL_DECLARE_WIDTH(width)                                                         \
  void update_range_##width(const OptimizerOptions& options, const UpdateContext& context,    \
                            size_t n, const float* w_in, SumHalves gradient_sum,              \
                            std::span<float* const> state, float* w_out);                     \
  void average_range_##width(double momentum, double share, double divisor, size_t n,         \
                             const float* r_in, const float* sum, float* r_out);              \
  void compensate_delay_##width(const DelayCompensation& options, size_t n, const float* sum, \
                                const float* now, const float* read, float* out);

PUSHPULL_DECLARE_WIDTH(baseline)
#if defined(__x86_64__)
PUSHPULL_DECLARE_WIDTH(avx2)
PUSHPULL_DECLARE_WIDTH(avx512f)
#endif

}  // namespace pushpull
