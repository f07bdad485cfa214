// Adding learned positions: one pass over the activations in either direction.
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/positions_pass.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

namespace {

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    add_all_positions(const PositionsPass pass, const T* x, const float* w, T* y) {
  add_positions<T, kPacked>(pass, blockIdx.x, static_cast<int>(threadIdx.x), x, w, y);
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    sum_all_positions(const PositionsPass pass, const T* dy, float unscale, float* dw) {
  sum_positions<T, kPacked>(pass, int64_t{blockIdx.x} * kBlock + threadIdx.x, dy, unscale, dw);
}

template <class T>
class CudaAddPositions final : public Operation {
 public:
  CudaAddPositions(Shared& shared, const AddPositionsShape& shape)
      : shared_(shared), pass_(shape), count_(pass_.samples * pass_.sample) {}

  Needs needs() const override {
    return {.in_place = true, .gradient_in_place = true, .splits = true};
  }

  void forward(const Run& run) override {
    const auto* x = as<T>(run.x[0].data);
    auto* y = as<T>(run.y.data);
    const auto kernel =
        pass_.packed<T>(x, y, run.w[0]) ? add_all_positions<T, true> : add_all_positions<T, false>;
    kernel<<<grid(flat_blocks(count_)), kBlock, 0, shared_.stream>>>(pass_, x, run.w[0], y);
    PP_CUDA_LAUNCHED("the addition of positions");
  }

  void backward_weights(const Run& run) override {
    const auto* dy = as<T>(run.dy.data);
    const auto kernel = pass_.packed<T>(dy, dy, run.dw[0]) ? sum_all_positions<T, true>
                                                           : sum_all_positions<T, false>;
    const int64_t packs = pieces(pass_.weights, kPackSize<T>);
    kernel<<<grid(pieces(packs, kBlock)), kBlock, 0, shared_.stream>>>(
        pass_, dy, 1.0F / shared_.loss_scale, run.dw[0]);
    PP_CUDA_LAUNCHED("the gradient of positions");
  }

  void backward_data(const Run& run) override {
    const void* dy = run.dy.data;
    void* dx = run.dx[0].data;
    if (dx == nullptr || dx == dy) return;
    copy(shared_, dy, static_cast<size_t>(count_) * sizeof(T), dx);
  }

 private:
  Shared& shared_;
  PositionsPass pass_;
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_add_positions(Shared& shared, const Spec& spec) {
  return make_typed<CudaAddPositions, Operation>(shared, spec_as<AddPositionsSpec>(spec).shape());
}

}  // namespace pushpull::ops::cuda
