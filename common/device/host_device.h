// Marks functions that kernels and the host share: one text, the same arithmetic, tested on the
// host.
#pragma once

#if defined(__CUDACC__)
#define PP_HOST_DEVICE __host__ __device__
#else
#define PP_HOST_DEVICE
#endif
