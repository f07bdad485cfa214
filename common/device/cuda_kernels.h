// Launches our own kernels on a stream. The stream's device must be the calling thread's current
// device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/device/slice_update.h"

namespace pushpull::device {

// right = left + right.
void launch_add(const float* left, float* right, size_t n, cudaStream_t stream);
// Implements Stream::find_non_finite.
void launch_find_non_finite(const float* x, size_t n, size_t slice, int64_t mark, int64_t* marks,
                            cudaStream_t stream);
// Implement Stream::update, Stream::square and Stream::measure (slice_update.cu).
void launch_update(const SliceBatch& batch, cudaStream_t stream);
void launch_square(const SliceBatch& batch, float divisor, double* squares, cudaStream_t stream);
void launch_measure(const SliceBatch& batch, double* squares, cudaStream_t stream);

// Returns cudaSuccess if this program contains code for the calling thread's device.
cudaError_t probe_code();

}  // namespace pushpull::device
