// Passes over whole tensors that Linear and Convolution need beside their library's calls: kernels
// of our own, enqueued on the backend's stream. Activations are of Shared::precision. Sums are cut
// by shape alone and have no atomics: the same bits on every device.
#pragma once

#include <cstdint>

#include "models/ops/cuda/shared.h"
#include "models/ops/ops.h"

namespace pushpull::ops::cuda {

// Where a plan is made, once for each shape that the run below is called with: scratch for its
// partial sums.
void plan_mask_and_sum_rows(Shared& shared, const LinearShape& shape);
// dy [N, M] = y > 0 ? dy : 0 in place where `shape.relu`, else neither is written nor y read;
// db [M] = its sum over the samples, over the loss scale.
void mask_and_sum_rows(Shared& shared, const LinearShape& shape, const Activation* y,
                       Activation* dy, float* db);

// The same for an image's bias: db [C] = sum of dy [N, C, H, W], over the loss scale.
void plan_sum_channels(Shared& shared, const ImageShape& image);
void sum_channels(Shared& shared, const ImageShape& image, const Activation* dy, float* db);

// y [N, C, H, W] += b [C].
void add_bias(Shared& shared, const ImageShape& image, const float* b, Activation* y);

// Weights as activations' type; `from` is aligned to a float only. Copies where activations are
// f32.
void cast_weights(Shared& shared, const float* from, int64_t count, Activation* to);

}  // namespace pushpull::ops::cuda
