// Softmax with cross-entropy: one warp per row, or one block if there are many classes.
#include "models/ops/cuda/cross_entropy_pass.h"
#include "models/ops/cuda/flat_pass.h"
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/operations.h"

namespace pushpull::ops::cuda {

namespace {

__device__ inline float shuffle(float value, int reach) {
  return __shfl_xor_sync(~0U, value, reach);
}
__device__ inline double shuffle(double value, int reach) {
  return __shfl_xor_sync(~0U, value, reach);
}
__device__ inline Best shuffle(Best best, int reach) {
  return {__shfl_xor_sync(~0U, best.logit, reach), __shfl_xor_sync(~0U, best.label, reach)};
}

// Merges the values of the kWidth threads (a warp or a block) that process one row.
template <int kWidth, class Value, class Merge>
__device__ Value merge_group(Value value, const Merge& merge) {
  PP_UNROLL
  for (int reach = kWarp / 2; reach > 0; reach /= 2) {
    value = merge(value, shuffle(value, reach));
  }
  if constexpr (kWidth > kWarp) {
    constexpr int kWarps = kWidth / kWarp;
    static_assert(std::is_trivially_default_constructible_v<Value>);
    __shared__ Value of_warp[kWarps];
    const unsigned lane = threadIdx.x % kWarp;
    if (lane == 0) of_warp[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = of_warp[lane % kWarps];
    PP_UNROLL
    for (int reach = kWarps / 2; reach > 0; reach /= 2) value = merge(value, shuffle(value, reach));
    __syncthreads();  // before the next call writes it
  }
  return value;
}
template <int kWidth>
__device__ int64_t row_of_group() {
  return int64_t{blockIdx.x} * (kBlock / kWidth) + threadIdx.x / kWidth;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock)
    find_losses(const T* logits, const int32_t* labels, int64_t count, int64_t classes,
                float* shares, float* losses) {
  const int64_t row = row_of_group<kWidth>();
  if (row >= count) return;  // true for whole groups
  const int thread = static_cast<int>(threadIdx.x) % kWidth;
  const T* x = logits + row * classes;
  float* p = shares + row * classes;
  const float top = merge_group<kWidth>(top_of(x, classes, thread, kWidth),
                                        [](float a, float b) { return b > a ? b : a; });
  const double sum = merge_group<kWidth>(exponentials(x, classes, top, thread, kWidth, p),
                                         [](double a, double b) { return a + b; });
  divide(classes, sum, thread, kWidth, p);
  if (thread == 0) losses[row] = loss_of(top, to_float(x[labels[row]]), sum);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock)
    find_best(const T* logits, int64_t count, int64_t classes, int32_t* predictions) {
  const int64_t row = row_of_group<kWidth>();
  if (row >= count) return;
  const int thread = static_cast<int>(threadIdx.x) % kWidth;
  const Best best = merge_group<kWidth>(best_of(logits + row * classes, classes, thread, kWidth),
                                        [](Best a, const Best& b) {
                                          a.meet(b);
                                          return a;
                                        });
  if (thread == 0) predictions[row] = best.label;
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    find_gradients(const float* shares, const int32_t* labels, const Divider by_classes,
                   int64_t count, float weight, T* dlogits) {
  logit_gradients<T, kPacked>(shares, labels, by_classes, count, weight, blockIdx.x,
                              static_cast<int>(threadIdx.x), dlogits);
}

template <class T>
class CudaCrossEntropy final : public CrossEntropy {
 public:
  CudaCrossEntropy(Shared& shared, const CrossEntropyShape& shape)
      : shared_(shared),
        shape_(shape),
        shares_(shared.device->allocate(static_cast<size_t>(shape.samples * shape.classes) *
                                        sizeof(float))) {}

  void forward(const Activation* logits, const int32_t* labels, int64_t count,
               float* losses) override {
    PP_ASSERT(count >= 0 && count <= shape_.samples);
    if (count == 0) return;
    const auto kernel = by_warp() ? find_losses<T, kWarp> : find_losses<T, kBlock>;
    kernel<<<blocks(count), kBlock, 0, shared_.stream>>>(as<T>(logits), labels, count,
                                                         shape_.classes, shares_.floats(), losses);
    PP_CUDA_LAUNCHED("cross-entropy");
  }

  void backward(const int32_t* labels, Activation* dlogits) override {
    const int64_t count = shape_.samples * shape_.classes;
    const float weight = 1.0F / static_cast<float>(shape_.samples) * shared_.loss_scale;
    const auto kernel = is_aligned(dlogits) ? find_gradients<T, true> : find_gradients<T, false>;
    kernel<<<grid(flat_blocks(count)), kBlock, 0, shared_.stream>>>(
        shares_.floats(), labels, Divider(shape_.classes), count, weight, as<T>(dlogits));
    PP_CUDA_LAUNCHED("cross-entropy's gradients");
  }

  void predict(const Activation* logits, int64_t count, int32_t* predictions) override {
    PP_ASSERT(count >= 0 && count <= shape_.samples);
    if (count == 0) return;
    const auto kernel = by_warp() ? find_best<T, kWarp> : find_best<T, kBlock>;
    kernel<<<blocks(count), kBlock, 0, shared_.stream>>>(as<T>(logits), count, shape_.classes,
                                                         predictions);
    PP_CUDA_LAUNCHED("predictions");
  }

 private:
  bool by_warp() const { return shape_.classes <= kWarpClasses; }
  unsigned blocks(int64_t rows) const {
    return grid(by_warp() ? pieces(rows, kBlock / kWarp) : rows);
  }

  Shared& shared_;
  CrossEntropyShape shape_;
  device::Memory shares_;  // softmax of the latest forward
};

}  // namespace

std::unique_ptr<CrossEntropy> make_cross_entropy(Shared& shared, const CrossEntropyShape& shape) {
  return make_typed<CudaCrossEntropy, CrossEntropy>(shared, shape);
}

}  // namespace pushpull::ops::cuda
