// The sum of two values. Both gradients are copies; the first one may stay where it is.
#include "models/ops/add.h"
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/pointwise_pass.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

namespace {

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock) add_values(const T* a, const T* b, int64_t count, T* y) {
  add<T, kPacked>(a, b, count, blockIdx.x, static_cast<int>(threadIdx.x), y);
}

template <class T>
class CudaAdd final : public Operation {
 public:
  CudaAdd(Shared& shared, int64_t count) : shared_(shared), count_(count) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }

  void forward(const Run& run) override {
    const T* a = as<T>(run.x[0].data);
    const T* b = as<T>(run.x[1].data);
    T* y = as<T>(run.y.data);
    const auto kernel = are_aligned({a, b, y}) ? add_values<T, true> : add_values<T, false>;
    kernel<<<grid(flat_blocks(count_)), kBlock, 0, shared_.stream>>>(a, b, count_, y);
    PP_CUDA_LAUNCHED("a sum");
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    for (const size_t i : {0, 1}) {
      void* dx = run.dx[i].data;
      if (dx == nullptr || dx == run.dy.data) continue;
      copy(shared_, run.dy.data, static_cast<size_t>(count_) * sizeof(T), dx);
    }
  }

 private:
  Shared& shared_;
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_add(Shared& shared, const Spec& spec) {
  const ValueType type = spec.output();
  // gradients of parameters are f32 whatever activations are
  if (type.element == Element::kFloat) {
    return std::make_unique<CudaAdd<float>>(shared, type.shape.size());
  }
  return make_typed<CudaAdd, Operation>(shared, type.shape.size());
}

}  // namespace pushpull::ops::cuda
