// The squared error of each target and its gradient, in one pass each.
#include "models/ops/cuda/head_pass.h"
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/squared_error.h"

namespace pushpull::ops::cuda {

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
