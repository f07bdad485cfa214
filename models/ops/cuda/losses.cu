// The losses of heads.

#include "models/ops/cuda/head_pass.h"
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/cuda/sums.cuh"
#include "models/ops/losses.h"

namespace pushpull::ops::cuda {

// Softmax with cross-entropy: one warp per row, or one block if there are many classes. Forward reads
// the scores once and keeps two floats per row, from which backward computes the probabilities again.

namespace {

// Null: losses, predictions or kept are not wanted. Labels are read for losses only.
struct RowResults {
  float* losses = nullptr;
  int32_t* predictions = nullptr;
  KeptRow* kept = nullptr;
};

template <class T, bool kPacked, int kWidth>
__global__ void __launch_bounds__(kBlock)
    find_losses(const T* x, const int32_t* labels, const CrossEntropyRule rule, int64_t rows,
                int64_t classes, const RowResults results) {
  const int64_t row = row_of_group<kWidth>();
  if (row >= rows) return;  // true for whole groups
  const int thread = thread_of_group<kWidth>();
  const T* scores = x + row * classes;
  RowPart part = part_of<T, kPacked>(scores, row, classes, thread, kWidth);
  const float top = group_max<kWidth>(part.top);
  if (results.predictions != nullptr) {
    const int32_t best = group_min<kWidth>(part.top == top ? part.label : INT32_MAX);
    if (thread == 0) results.predictions[row] = best;
  }
  if (results.losses == nullptr) return;
  part.rescale(top);
  part.sum = group_sum<kWidth>(part.sum);
  if (rule.smoothing != 0.0F) part.scores = group_sum<kWidth>(part.scores);
  if (thread != 0) return;
  const int32_t label = labels[row];
  if (rule.is_ignored(label)) {
    results.losses[row] = 0.0F;
    return;
  }
  const float loss = loss_of(part, to_float(scores[label]), classes, rule.smoothing);
  results.losses[row] = loss * rule.weight(label);
  if (results.kept != nullptr) {
    results.kept[row] = {part.top, static_cast<float>(1.0 / part.sum)};
  }
}

template <class T, bool kPacked, int kWidth>
__global__ void __launch_bounds__(kBlock)
    find_gradients(const T* x, const int32_t* labels, const KeptRow* kept,
                   const CrossEntropyRule rule, int64_t rows, int64_t classes,
                   const HeadScale scale, T* dx) {
  const int64_t row = row_of_group<kWidth>();
  if (row >= rows) return;
  const int64_t at = row * classes;
  score_gradients<T, kPacked>(x + at, row, classes, labels[row], kept[row], rule, scale.value(),
                              thread_of_group<kWidth>(), kWidth, dx + at);
}

template <class T>
class CudaCrossEntropy final : public Operation {
 public:
  CudaCrossEntropy(Shared& shared, const CrossEntropySpec& spec)
      : shared_(shared), shape_(spec.shape()) {
    const CrossEntropyOptions& options = spec.options();
    rule_.smoothing = options.smoothing;
    rule_.has_ignored = options.ignored.has_value();
    rule_.ignored = options.ignored.value_or(0);
    if (options.class_weights.empty()) return;
    const size_t bytes = options.class_weights.size() * sizeof(float);
    class_weights_ = shared.device->allocate(bytes);
    PP_CUDA(cudaMemcpyAsync(class_weights_.data(), options.class_weights.data(), bytes,
                            cudaMemcpyHostToDevice, shared.stream));
    PP_CUDA(cudaStreamSynchronize(shared.stream));
    rule_.class_weights = class_weights_.floats();
  }

  Needs needs() const override {
    return {.inputs = 0b11,
            .kept_bytes = static_cast<size_t>(shape_.samples) * sizeof(KeptRow),
            .gradient_in_input = true};
  }

  void forward(const Run& run) override {
    PP_ASSERT(run.valid >= 0 && run.valid <= shape_.samples);
    if (run.valid == 0) return;
    const T* x = as<T>(run.x[0].data);
    CrossEntropyRule rule = rule_;
    if (!run.training) {
      rule.smoothing = 0.0F;
      rule.class_weights = nullptr;
    }
    const RowResults results{run.y.floats(), run.predictions.ints(),
                             run.training ? static_cast<KeptRow*>(run.kept) : nullptr};
    with_rows(is_aligned(x), shape_.classes, [&]<bool kPacked, int kWidth>() {
      find_losses<T, kPacked, kWidth>
          <<<row_blocks(run.valid, shape_.classes), kBlock, 0, shared_.stream>>>(
              x, run.x[1].ints(), rule, run.valid, shape_.classes, results);
    });
    PP_CUDA_LAUNCHED("cross-entropy");
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    const T* x = as<T>(run.x[0].data);
    T* dx = as<T>(run.dx[0].data);
    const HeadScale scale(shared_, run);
    with_rows(are_aligned({x, dx}), shape_.classes, [&]<bool kPacked, int kWidth>() {
      find_gradients<T, kPacked, kWidth>
          <<<row_blocks(shape_.samples, shape_.classes), kBlock, 0, shared_.stream>>>(
              x, run.x[1].ints(), static_cast<const KeptRow*>(run.kept), rule_, shape_.samples,
              shape_.classes, scale, dx);
    });
    PP_CUDA_LAUNCHED("cross-entropy's gradients");
  }

 private:
  Shared& shared_;
  CrossEntropyShape shape_;
  device::Memory class_weights_;
  CrossEntropyRule rule_;
};

}  // namespace

std::unique_ptr<Operation> make_cross_entropy(Shared& shared, const Spec& spec) {
  return make_typed<CudaCrossEntropy, Operation>(shared, spec_as<CrossEntropySpec>(spec));
}

// The squared error of each target and its gradient, in one pass each.

namespace {

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    find_squares(const T* x, const float* target, int64_t count, float* y) {
  squares<T, kPacked>(x, target, count, blockIdx.x, static_cast<int>(threadIdx.x), y);
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    find_square_gradients(const T* x, const float* target, int64_t count, const HeadScale scale,
                          T* dx) {
  square_gradients<T, kPacked>(x, target, count, scale.value(), blockIdx.x,
                               static_cast<int>(threadIdx.x), dx);
}

template <class T>
class CudaSquaredError final : public Operation {
 public:
  CudaSquaredError(Shared& shared, int64_t targets) : shared_(shared), targets_(targets) {}

  Needs needs() const override { return {.inputs = 0b11, .gradient_in_input = true}; }

  void forward(const Run& run) override {
    PP_ASSERT(run.valid >= 0 && run.valid <= targets_);
    if (run.valid == 0) return;
    const T* x = as<T>(run.x[0].data);
    const float* target = run.x[1].floats();
    float* y = run.y.floats();
    const auto kernel =
        are_aligned({x, target, y}) ? find_squares<T, true> : find_squares<T, false>;
    kernel<<<grid(flat_blocks(run.valid)), kBlock, 0, shared_.stream>>>(x, target, run.valid, y);
    PP_CUDA_LAUNCHED("squared errors");
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    const T* x = as<T>(run.x[0].data);
    const float* target = run.x[1].floats();
    T* dx = as<T>(run.dx[0].data);
    const bool packed = are_aligned({x, target, dx});
    const auto kernel = packed ? find_square_gradients<T, true> : find_square_gradients<T, false>;
    kernel<<<grid(flat_blocks(targets_)), kBlock, 0, shared_.stream>>>(x, target, targets_,
                                                                       HeadScale(shared_, run), dx);
    PP_CUDA_LAUNCHED("squared errors' gradients");
  }

 private:
  Shared& shared_;
  int64_t targets_;
};

}  // namespace

std::unique_ptr<Operation> make_squared_error(Shared& shared, const Spec& spec) {
  return make_typed<CudaSquaredError, Operation>(shared, spec_as<SquaredErrorSpec>(spec).targets());
}

}  // namespace pushpull::ops::cuda
