// Passes over whole tensors that linear layers and convolutions need beside library calls: unrolling
// images and folding them back, transposing, type conversion, sums of rows and channels. Our own
// kernels, enqueued on the backend's stream. They compute each element in a fixed order, and split
// sums by shape alone, so equal inputs give equal bits on all devices. Activations have type
// Shared::precision. Used on the backend's thread.
#pragma once

#include <cstdint>

#include "models/ops/cuda/plans.h"
#include "models/ops/cuda/row_pass.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/linear.h"

namespace pushpull::ops::cuda {

// Passes over whole tensors that Linear and Convolution need in addition to library calls: our own
// kernels, enqueued on the backend's stream. Activations have type Shared::precision. Sums are
// split by shape alone and use no atomics, so all devices give the same bits. Used on the backend's
// thread.

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

// An operation's weights in the type that it computes in: the caller's floats, or a 16-bit copy,
// made once for forward and backward. Used on the backend's thread.
class Weights {
 public:
  Weights(Shared& shared, int64_t count) : shared_(&shared), count_(count) {
    if (shared.short_activations()) copy_ = shared.buffer((static_cast<size_t>(count) + 1) / 2);
  }

  const Activation* of_forward(const float* w) {
    if (!shared_->short_activations()) return w;
    cast_weights(*shared_, w, count_, copy_.data());
    copied_ = w;
    return copy_.data();
  }
  // Returns the copy made by the latest forward.
  const Activation* of_backward(const float* w) {
    return shared_->short_activations() && copied_ == w ? copy_.data() : of_forward(w);
  }

 private:
  Shared* shared_;
  int64_t count_;
  Buffer copy_;
  const float* copied_ = nullptr;
};

}  // namespace pushpull::ops::cuda
