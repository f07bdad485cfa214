// Passes over whole tensors that Linear and Convolution need in addition to library calls: our own
// kernels, enqueued on the backend's stream. Activations have type Shared::precision. Sums are
// split by shape alone and use no atomics, so all devices give the same bits. Used on the backend's
// thread.
#pragma once

#include <cstdint>

#include "models/ops/cuda/row_pass.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/linear.h"

namespace pushpull::ops::cuda {

// Reserves scratch for the partial sums. Call it when a plan is made, once per shape that the
// function below is called with.
void plan_mask_and_sum_rows(Shared& shared, const LinearShape& shape);
// If `shape.relu`: dy [N, M] = y > 0 ? dy : 0, in place; otherwise dy does not change and y is not
// read. db [M] = sum of dy over the samples, divided by the loss scale.
void mask_and_sum_rows(Shared& shared, const LinearShape& shape, const Activation* y,
                       Activation* dy, float* db);

// Adds up the sums of the chunks [chunks, sums, columns] and divides by the loss scale. With one
// chunk it does nothing: the kernel that sums the chunks has written the results.
//   results: null at the end if not wanted.
void finish_columns(Shared& shared, const RowPass& pass, int sums, const float* chunks,
                    const ColumnResults& results);

// The same for an image's bias: db [C] = sum of dy [N, C, H, W], divided by the loss scale.
void plan_sum_channels(Shared& shared, const ImageShape& image);
void sum_channels(Shared& shared, const ImageShape& image, const Activation* dy, float* db);

// y [N, C, H, W] += b [C].
void add_bias(Shared& shared, const ImageShape& image, const float* b, Activation* y);

// Converts weights to the activations' type; plain copy if that is f32.
//   from: aligned to a float only.
void cast_weights(Shared& shared, const float* from, int64_t count, Activation* to);

}  // namespace pushpull::ops::cuda
