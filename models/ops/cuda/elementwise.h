// Kernels that other operations use around a library's product. Enqueued on shared.stream; element
// types by shared.precision.
#pragma once

#include <cstdint>

#include "models/ops/cuda/shared.h"
#include "models/ops/ops.h"

namespace pushpull::ops::cuda {

// dy = y > 0 ? dy : 0 where shape.relu, in place. db[m] = sum of dy over samples, in an order that
// the shape alone decides, times 1 / loss_scale.
void mask_and_sum_rows(Shared& shared, const LinearShape& shape, const Activation* y,
                       Activation* dy, float* db);
// The same sum over samples and places of an image's gradient, per channel.
void sum_channels(Shared& shared, const ImageShape& shape, const Activation* dy, float* db);
// n floats as activations.
void cast_weights(Shared& shared, const float* from, int64_t n, Activation* to);
// y += b per channel.
void add_bias(Shared& shared, const ImageShape& shape, const float* b, Activation* y);

}  // namespace pushpull::ops::cuda
