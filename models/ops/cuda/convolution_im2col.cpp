// Convolution without cuDNN: images are unrolled (plans.h), a chunk of samples at a time, and
// the products are those of a linear layer. Their rows are output positions, channels last, so
// images are transposed on the way in and out.
#include <algorithm>
#include <optional>

#include "models/ops/cuda/convolution.h"
#include "models/ops/cuda/matmul.h"
#include "models/ops/cuda/passes.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

namespace {

constexpr int64_t kColumnBytes = int64_t{64} << 20;  // size of one chunk's columns

// The products of one chunk of samples.
struct Chunk {
  Chunk(Shared& shared, const ConvolutionShape& shape, const Im2col& plan, int64_t count)
      : samples(count),
        rows(count * plan.positions()),
        products(layer_products(rows, plan.columns(), shape.outputs)),
        forward(shared, {products.forward, activation_type(shared.precision),
                         activation_type(shared.precision),
                         shape.bias ? Epilogue::kBias : Epilogue::kNone}),
        weights(shared, {products.weights, activation_type(shared.precision), CUDA_R_32F,
                         Epilogue::kNone}) {
    if (!shape.input_gradient) return;
    // f32, since up to k*k of them are added
    data.emplace(shared, MatmulShape{products.data, activation_type(shared.precision), CUDA_R_32F,
                                     Epilogue::kNone});
  }

  size_t scratch_bytes() const {
    const size_t bytes = std::max(forward.scratch_bytes(), weights.scratch_bytes());
    return data ? std::max(bytes, data->scratch_bytes()) : bytes;
  }

  int64_t samples;
  int64_t rows;
  LayerProducts products;
  Matmul forward;
  Matmul weights;
  std::optional<Matmul> data;
};

// Size in f32, which either buffer may hold.
size_t bytes(int64_t elements) { return padded(static_cast<size_t>(elements) * sizeof(float)); }

class Im2colConvolution final : public Operation {
 public:
  Im2colConvolution(Shared& shared, const ConvolutionShape& shape)
      : shared_(shared),
        shape_(shape),
        plan_(plan_im2col(shape)),
        element_bytes_(shared.short_activations() ? 2 : 4),
        weights_(shared, shape.outputs * plan_.columns()) {
    const int64_t samples = shape.input.samples;
    const int64_t at_a_time = samples_at_a_time(plan_, samples, sizeof(float), kColumnBytes);
    full_.emplace(shared, shape, plan_, at_a_time);
    if (samples % at_a_time != 0) rest_.emplace(shared, shape, plan_, samples % at_a_time);
    // one buffer for images and one for columns, after the scratch that the products use
    images_at_ = full_->scratch_bytes();
    if (rest_) images_at_ = std::max(images_at_, rest_->scratch_bytes());
    columns_at_ = images_at_ + bytes(full_->rows * shape.outputs);
    shared.need_scratch(columns_at_ + bytes(full_->rows * plan_.columns()));
    if (shape.bias) plan_sum_channels(shared, shape.output());
  }

  // Keeps nothing from forward to backward.
  Needs needs() const override { return {.inputs = 1, .splits = true}; }

  void forward(const Run& run) override {
    const Activation* const weights = weights_.of_forward(run.w[0]);
    for_each_chunk([&](Chunk& chunk, int64_t first) {
      unroll(shared_, plan_, image(run.x[0].data, shape_.input, first), chunk.rows, columns());
      if (shape_.bias) cast_weights(shared_, run.w[1], shape_.outputs, chunk.forward.bias());
      chunk.forward.run(columns(), weights, images());
      transpose(shared_, {chunk.samples, plan_.positions(), shape_.outputs}, images(),
                image(run.y.data, shape_.output(), first));
    });
  }

  void backward_weights(const Run& run) override {
    if (shape_.bias) sum_channels(shared_, shape_.output(), run.dy.data, run.dw[1]);
    for_each_chunk([&](Chunk& chunk, int64_t first) {
      unroll(shared_, plan_, image(run.x[0].data, shape_.input, first), chunk.rows, columns());
      channels_last(chunk, image(run.dy.data, shape_.output(), first));
      chunk.weights.run(images(), columns(), run.dw[0], 1.0F / shared_.loss_scale,
                        first == 0 ? 0.0F : 1.0F);
    });
  }

  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    const Activation* const weights = weights_.of_backward(run.w[0]);
    const int64_t each = shape_.input.size() / shape_.input.samples;
    for_each_chunk([&](Chunk& chunk, int64_t first) {
      channels_last(chunk, image(run.dy.data, shape_.output(), first));
      chunk.data->run(images(), weights, columns());
      fold(shared_, plan_, static_cast<const float*>(columns()), chunk.samples * each,
           image(run.dx[0].data, shape_.input, first));
    });
  }

 private:
  // Calls f(chunk, its first sample) for each chunk.
  template <class F>
  void for_each_chunk(F f) {
    for (int64_t first = 0; first < shape_.input.samples; first += full_->samples) {
      const bool whole = first + full_->samples <= shape_.input.samples;
      f(whole ? *full_ : *rest_, first);
    }
  }

  void channels_last(const Chunk& chunk, const Activation* dy) {
    transpose(shared_, {chunk.samples, shape_.outputs, plan_.positions()}, dy, images());
  }

  // Address of sample `first` of a tensor.
  const Activation* image(const Activation* tensor, const ImageShape& shape, int64_t first) const {
    return static_cast<const std::byte*>(tensor) + offset(shape, first);
  }
  Activation* image(Activation* tensor, const ImageShape& shape, int64_t first) const {
    return static_cast<std::byte*>(tensor) + offset(shape, first);
  }
  int64_t offset(const ImageShape& shape, int64_t first) const {
    return shape.size() / shape.samples * first * element_bytes_;
  }

  Activation* images() const { return place_in_scratch(shared_, images_at_); }
  Activation* columns() const { return place_in_scratch(shared_, columns_at_); }

  Shared& shared_;
  const ConvolutionShape shape_;
  const Im2col plan_;
  const int64_t element_bytes_;
  Weights weights_;
  std::optional<Chunk> full_;
  std::optional<Chunk> rest_;  // the last chunk, of fewer samples
  size_t images_at_ = 0;
  size_t columns_at_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_im2col_convolution(Shared& shared, const ConvolutionShape& shape) {
  return std::make_unique<Im2colConvolution>(shared, shape);
}

}  // namespace pushpull::ops::cuda
