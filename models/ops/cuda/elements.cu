// A field of floats as activations: a view if activations are f32, and a 16-bit copy otherwise. The
// copy lies in the memory of its run, so several micro-batches may be between forward and backward.
#include "models/ops/cuda/flat_pass.h"
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/elements.h"

namespace pushpull::ops::cuda {

namespace {

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock) shorten(const float* from, int64_t count, T* to) {
  convert<float, T, kPacked>(from, count, blockIdx.x, static_cast<int>(threadIdx.x), to);
}

template <class T>
class CudaElements final : public Operation {
 public:
  CudaElements(Shared& shared, int64_t count) : shared_(shared), count_(count) {}

  Needs needs() const override {
    const size_t bytes = static_cast<size_t>(count_) * sizeof(T);
    return {.kept_bytes = is_same() ? 0 : bytes, .is_view = true};
  }
  void forward(const Run& /*run*/) override {}
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& /*run*/) override {}

  const void* view(const Run& run) override {
    if constexpr (!is_same()) {
      const float* from = run.x[0].floats();
      T* to = as<T>(run.kept);
      const auto kernel = are_aligned({from, to}) ? shorten<T, true> : shorten<T, false>;
      kernel<<<grid(flat_blocks(count_)), kBlock, 0, shared_.stream>>>(from, count_, to);
      PP_CUDA_LAUNCHED("the conversion of a field");
      return to;
    } else {
      return run.x[0].data;
    }
  }

 private:
  static constexpr bool is_same() { return std::is_same_v<T, float>; }

  Shared& shared_;
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_elements(Shared& shared, const Spec& spec) {
  return make_typed<CudaElements, Operation>(shared, spec_as<ElementsSpec>(spec).shape().size());
}

}  // namespace pushpull::ops::cuda
