// A slice of a dimension: one pass over the output, in either direction.
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/select_pass.h"

namespace pushpull::ops::cuda {

namespace {

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock) select_all(const SelectPass pass, const T* x, T* y) {
  select<T, kPacked>(pass, blockIdx.x, static_cast<int>(threadIdx.x), x, y);
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    select_gradients(const SelectPass pass, const T* dy, T* dx) {
  select_gradient<T, kPacked>(pass, blockIdx.x, static_cast<int>(threadIdx.x), dy, dx);
}

template <class T>
class CudaSelect final : public Operation {
 public:
  CudaSelect(Shared& shared, const SelectShape& shape) : shared_(shared), pass_(shape) {}

  Needs needs() const override { return {}; }

  void forward(const Run& run) override {
    const auto* x = as<T>(run.x[0].data);
    auto* y = as<T>(run.y.data);
    const auto kernel = pass_.packed<T>(x, y) ? select_all<T, true> : select_all<T, false>;
    kernel<<<blocks(1), kBlock, 0, shared_.stream>>>(pass_, x, y);
    PP_CUDA_LAUNCHED("a selection");
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    const auto* dy = as<T>(run.dy.data);
    auto* dx = as<T>(run.dx[0].data);
    const auto kernel =
        pass_.packed<T>(dy, dx) ? select_gradients<T, true> : select_gradients<T, false>;
    kernel<<<blocks(pass_.shape.size), kBlock, 0, shared_.stream>>>(pass_, dy, dx);
    PP_CUDA_LAUNCHED("the gradient of a selection");
  }

 private:
  unsigned blocks(int64_t slices) const {
    return grid(flat_blocks(pass_.shape.outer * slices * pass_.shape.inner));
  }

  Shared& shared_;
  SelectPass pass_;
};

}  // namespace

std::unique_ptr<Operation> make_select(Shared& shared, const Spec& spec) {
  return make_typed<CudaSelect, Operation>(shared, spec_as<SelectSpec>(spec).shape());
}

}  // namespace pushpull::ops::cuda
