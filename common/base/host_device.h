// Marks functions that kernels and the host share: one source, the same arithmetic, tested on the
// host.
#pragma once

#if defined(__CUDACC__)
#define PP_HOST_DEVICE __host__ __device__
#else
#define PP_HOST_DEVICE
#endif

// For functions that must be inlined into each copy of a host loop (common/base/simd.h).
#define PP_HOST_DEVICE_INLINE PP_HOST_DEVICE inline __attribute__((always_inline))
