// Layer normalisation: one kernel forward; backward one over columns for the parameters, a second one
// (finish_columns) for the sums of its chunks, and one over rows for dx.
#include "models/ops/cuda/layer_norm_pass.h"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/passes.h"
#include "models/ops/cuda/sums.cuh"

namespace pushpull::ops::cuda {

namespace {

//   kept: null if backward does not follow.
template <class T, bool kPacked, int kWidth>
__global__ void __launch_bounds__(kBlock)
    normalise_rows(const LayerNormShape shape, const T* x, const float* scale, const float* shift,
                   T* y, RowStatistics* kept) {
  const int64_t row = row_of_group<kWidth>();
  if (row >= shape.rows) return;  // true for whole groups
  const int thread = thread_of_group<kWidth>();
  const int64_t width = shape.width;
  const T* from = x + row * width;
  RowStatistics statistics{0.0F, 0.0F};
  if (shape.centred) {
    const float part = sum_of_row<T, kPacked, false>(from, width, 0.0F, thread, kWidth);
    statistics.mean = mean_of(group_sum<kWidth>(part), width);
  }
  const float part = sum_of_row<T, kPacked, true>(from, width, statistics.mean, thread, kWidth);
  statistics.inverse = inverse_of(group_sum<kWidth>(part), width, shape.epsilon);
  normalise_row<T, kPacked>(statistics, from, scale, shift, width, thread, kWidth, y + row * width);
  if (kept != nullptr && thread == 0) kept[row] = statistics;
}

template <class T, bool kPacked, int kWidth>
__global__ void __launch_bounds__(kBlock)
    find_row_gradients(const LayerNormShape shape, const RowStatistics* kept, const T* x,
                       const T* dy, const float* scale, T* dx) {
  const int64_t row = row_of_group<kWidth>();
  if (row >= shape.rows) return;
  const int thread = thread_of_group<kWidth>();
  const int64_t width = shape.width;
  const int64_t at = row * width;
  const RowStatistics statistics = kept[row];
  RowGradient means =
      sum_gradients<T, kPacked>(statistics, x + at, dy + at, scale, width, thread, kWidth);
  means.g = mean_of(group_sum<kWidth>(means.g), width);
  means.product = mean_of(group_sum<kWidth>(means.product), width);
  if (!shape.centred) means.g = 0.0F;
  row_gradients<T, kPacked>(statistics, means, x + at, dy + at, scale, width, thread, kWidth,
                            dx + at);
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    sum_all_parameters(const RowPass pass, const T* x, const T* dy, const RowStatistics* kept,
                       float unscale, float* chunks, const ColumnResults results) {
  const RowPass::Block block = pass.block(blockIdx.x);
  float sums[2][kPackSize<T>];
  sum_parameters<T, kPacked>(pass, block, static_cast<int>(threadIdx.x), x, dy, kept, sums);
  finish_block(pass, block, sums, unscale, chunks, results);
}

template <class T>
class CudaLayerNorm final : public Operation {
 public:
  CudaLayerNorm(Shared& shared, const LayerNormShape& shape)
      : shared_(shared), shape_(shape), rows_(shape.rows, shape.width, kPackSize<T>) {
    shared.need_scratch(static_cast<size_t>(rows_.chunks * 2 * shape.width) * sizeof(float));
  }

  Needs needs() const override {
    return {.inputs = 1,
            .kept_bytes = static_cast<size_t>(shape_.rows) * sizeof(RowStatistics),
            .gradient_in_place = true,
            .splits = true};
  }

  void forward(const Run& run) override {
    const auto* x = as<T>(run.x[0].data);
    auto* y = as<T>(run.y.data);
    const float* scale = run.w[0];
    const float* shift = shape_.centred ? run.w[1] : nullptr;
    auto* kept = run.training ? statistics(run) : nullptr;
    with_rows(is_packed({x, y, scale, shift}), shape_.width, [&]<bool kPacked, int kWidth>() {
      normalise_rows<T, kPacked, kWidth>
          <<<row_blocks(shape_.rows, shape_.width), kBlock, 0, shared_.stream>>>(shape_, x, scale,
                                                                                 shift, y, kept);
    });
    PP_CUDA_LAUNCHED("layer normalisation");
  }

  // Before backward_data, which may overwrite dy.
  void backward_weights(const Run& run) override {
    const auto* x = as<T>(run.x[0].data);
    const auto* dy = as<T>(run.dy.data);
    auto* chunks = static_cast<float*>(shared_.scratch.data());
    const ColumnResults results{{run.dw[0], shape_.centred ? run.dw[1] : nullptr}};
    const auto kernel =
        is_packed({x, dy}) ? sum_all_parameters<T, true> : sum_all_parameters<T, false>;
    kernel<<<grid(rows_.blocks()), kBlock, 0, shared_.stream>>>(
        rows_, x, dy, statistics(run), 1.0F / shared_.loss_scale, chunks, results);
    PP_CUDA_LAUNCHED("the sums of a layer normalisation's parameters");
    finish_columns(shared_, rows_, 2, chunks, results);
  }

  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    const auto* x = as<T>(run.x[0].data);
    const auto* dy = as<T>(run.dy.data);
    auto* dx = as<T>(run.dx[0].data);
    const float* scale = run.w[0];
    with_rows(is_packed({x, dy, dx, scale}), shape_.width, [&]<bool kPacked, int kWidth>() {
      find_row_gradients<T, kPacked, kWidth>
          <<<row_blocks(shape_.rows, shape_.width), kBlock, 0, shared_.stream>>>(
              shape_, statistics(run), x, dy, scale, dx);
    });
    PP_CUDA_LAUNCHED("the gradient of layer normalisation");
  }

 private:
  static RowStatistics* statistics(const Run& run) { return static_cast<RowStatistics*>(run.kept); }
  // A null pointer is aligned.
  bool is_packed(std::initializer_list<const void*> tensors) const {
    return has_whole_packs<T>(shape_.width) && are_aligned(tensors);
  }

  Shared& shared_;
  LayerNormShape shape_;
  RowPass rows_;  // for the parameters
};

}  // namespace

std::unique_ptr<Operation> make_layer_norm(Shared& shared, const Spec& spec) {
  return make_typed<CudaLayerNorm, Operation>(shared, spec_as<LayerNormSpec>(spec).shape());
}

}  // namespace pushpull::ops::cuda
