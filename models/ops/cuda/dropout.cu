// Dropout with the mask of the CPU: the key lies in memory of the device, so that a captured run may
// be launched again with another one.
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/pointwise_pass.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/dropout.h"

namespace pushpull::ops::cuda {

namespace {

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    drop_some(const uint64_t* key, const DropoutRule rule, const T* x, int64_t count, T* y) {
  drop<T, kPacked>(*key, rule, x, count, blockIdx.x, static_cast<int>(threadIdx.x), y);
}

template <class T>
class CudaDropout final : public Operation {
 public:
  CudaDropout(Shared& shared, const DropoutSpec& spec)
      : shared_(shared), count_(spec.shape().size()), rule_(spec.probability()) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }
  void forward(const Run& run) override { apply(run, as<T>(run.x[0].data), as<T>(run.y.data)); }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data != nullptr) apply(run, as<T>(run.dy.data), as<T>(run.dx[0].data));
  }

 private:
  void apply(const Run& run, const T* x, T* y) {
    if (!run.training || rule_.least == 0) {
      if (x != y) copy(shared_, x, static_cast<size_t>(count_) * sizeof(T), y);
      return;
    }
    PP_ASSERT(run.key != nullptr);
    const auto kernel = are_aligned({x, y}) ? drop_some<T, true> : drop_some<T, false>;
    kernel<<<grid(flat_blocks(count_)), kBlock, 0, shared_.stream>>>(run.key, rule_, x, count_, y);
    PP_CUDA_LAUNCHED("dropout");
  }

  Shared& shared_;
  int64_t count_;
  DropoutRule rule_;
};

}  // namespace

std::unique_ptr<Operation> make_dropout(Shared& shared, const Spec& spec) {
  return make_typed<CudaDropout, Operation>(shared, spec_as<DropoutSpec>(spec));
}

}  // namespace pushpull::ops::cuda
