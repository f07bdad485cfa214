// Passes over whole tensors that products and convolutions need: unrolling images and folding them
// back, transposing, type conversion. Enqueued on the backend's stream. Our own kernels compute
// each element in a fixed order, so equal inputs give equal bits. Used on the backend's thread.
#pragma once

#include <cstdint>

#include "models/ops/cuda/shared.h"
#include "models/ops/plan/im2col_plan.h"
#include "models/ops/plan/transpose_plan.h"

namespace pushpull::ops::cuda {

// columns [rows, plan.columns()] of the image x; both are activations.
void unroll(Shared& shared, const Im2col& plan, const Activation* x, int64_t rows,
            Activation* columns);
// dx = for each of its `elements`, the sum of the columns that contain it.
void fold(Shared& shared, const Im2col& plan, const float* columns, int64_t elements,
          Activation* dx);

void transpose(Shared& shared, const TransposePlan& plan, const Activation* from, Activation* to);

// to = from * factor, converted from activations to f32.
void widen(Shared& shared, const Activation* from, int64_t count, float factor, float* to);

// d [rows, columns] += row [columns], then max(d, 0) if `relu`; activations.
struct RowShape {
  int64_t rows = 0;
  int64_t columns = 0;
};
void add_row(Shared& shared, const RowShape& shape, const Activation* row, bool relu,
             Activation* d);

}  // namespace pushpull::ops::cuda
