// Marks functions that kernels and the host share: one text, the same arithmetic, tested on the
// host.
#pragma once

#if defined(__CUDACC__)
#define PP_HOST_DEVICE __host__ __device__
#else
#define PP_HOST_DEVICE
#endif

// For what has to be inlined into each copy of a loop of the host (common/base/simd.h).
#define PP_HOST_DEVICE_INLINE PP_HOST_DEVICE inline __attribute__((always_inline))
