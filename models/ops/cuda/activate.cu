// Activation functions, in one pass each way.
#include "models/ops/activate.h"
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/pointwise_pass.h"

namespace pushpull::ops::cuda {

namespace {

template <class F, class T, bool kPacked>
__global__ void __launch_bounds__(kBlock) find_values(const T* x, int64_t count, T* y) {
  activate<F, T, kPacked>(x, count, blockIdx.x, static_cast<int>(threadIdx.x), y);
}

template <class F, class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    find_slopes(const T* from, const T* dy, int64_t count, T* dx) {
  activate_gradients<F, T, kPacked>(from, dy, count, blockIdx.x, static_cast<int>(threadIdx.x), dx);
}

template <class T>
class CudaActivate final : public Operation {
 public:
  CudaActivate(Shared& shared, const ActivateSpec& spec)
      : shared_(shared),
        function_(spec.function()),
        from_output_(with_function(function_, []<class F>(F) { return F::kFromOutput; })),
        count_(spec.output().shape.size()) {}

  Needs needs() const override {
    return {.inputs = from_output_ ? 0U : 1U,
            .output = from_output_,
            .in_place = from_output_,
            .gradient_in_place = true};
  }

  void forward(const Run& run) override {
    const T* x = as<T>(run.x[0].data);
    T* y = as<T>(run.y.data);
    const bool packed = are_aligned({x, y});
    with_function(function_, [&]<class F>(F) {
      const auto kernel = packed ? find_values<F, T, true> : find_values<F, T, false>;
      kernel<<<grid(flat_blocks(count_)), kBlock, 0, shared_.stream>>>(x, count_, y);
    });
    PP_CUDA_LAUNCHED("an activation function");
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    const T* from = as<T>(from_output_ ? run.y.data : run.x[0].data);
    const T* dy = as<T>(run.dy.data);
    T* dx = as<T>(run.dx[0].data);
    const bool packed = are_aligned({from, dy, dx});
    with_function(function_, [&]<class F>(F) {
      const auto kernel = packed ? find_slopes<F, T, true> : find_slopes<F, T, false>;
      kernel<<<grid(flat_blocks(count_)), kBlock, 0, shared_.stream>>>(from, dy, count_, dx);
    });
    PP_CUDA_LAUNCHED("an activation function's gradients");
  }

 private:
  Shared& shared_;
  Function function_;
  bool from_output_;
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_activate(Shared& shared, const Spec& spec) {
  return make_typed<CudaActivate, Operation>(shared, spec_as<ActivateSpec>(spec));
}

}  // namespace pushpull::ops::cuda
