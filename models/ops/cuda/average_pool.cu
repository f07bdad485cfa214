// Global average pooling: one warp per plane forward, one pass over dx backward.
#include "models/ops/average_pool.h"
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/pool_pass.h"

namespace pushpull::ops::cuda {

namespace {

template <class T, int kVector, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    find_means(const T* x, int64_t planes, int64_t area, T* y) {
  const int64_t plane = int64_t{blockIdx.x} * (kBlock / kWarp) + threadIdx.x / kWarp;
  if (plane >= planes) return;  // true for whole warps
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float sum = sum_of_lane<kVector, kPacked>(x + plane * area, area, lane);
  PP_UNROLL
  for (int reach = kWarp / 2; reach > 0; reach /= 2) sum += __shfl_xor_sync(~0U, sum, reach);
  if (lane == 0) y[plane] = from_float<T>(sum / static_cast<float>(area));
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    find_mean_gradients(const Divider by_area, const T* dy, int64_t count, T* dx) {
  spread_means<T, kPacked>(by_area, dy, count, blockIdx.x, static_cast<int>(threadIdx.x), dx);
}

template <class T>
class CudaAveragePool final : public Operation {
 public:
  CudaAveragePool(Shared& shared, const ImageShape& image)
      : shared_(shared),
        planes_(image.samples * image.channels),
        area_(image.height * image.width) {}

  Needs needs() const override { return {}; }

  void forward(const Run& run) override {
    const T* x = as<T>(run.x[0].data);
    const auto kernel = area_ % kPackSize<T> != 0 ? find_means<T, 1, false>
                        : is_aligned(x)           ? find_means<T, kPackSize<T>, true>
                                                  : find_means<T, kPackSize<T>, false>;
    kernel<<<grid(pieces(planes_, kBlock / kWarp)), kBlock, 0, shared_.stream>>>(x, planes_, area_,
                                                                                 as<T>(run.y.data));
    PP_CUDA_LAUNCHED("average pooling");
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    T* dx = as<T>(run.dx[0].data);
    const int64_t count = planes_ * area_;
    const auto kernel = is_aligned(dx) ? find_mean_gradients<T, true>  //
                                       : find_mean_gradients<T, false>;
    kernel<<<grid(flat_blocks(count)), kBlock, 0, shared_.stream>>>(Divider(area_),
                                                                    as<T>(run.dy.data), count, dx);
    PP_CUDA_LAUNCHED("average pooling's gradients");
  }

 private:
  Shared& shared_;
  int64_t planes_;
  int64_t area_;
};

}  // namespace

std::unique_ptr<Operation> make_average_pool(Shared& shared, const Spec& spec) {
  return make_typed<CudaAveragePool, Operation>(shared, spec_as<AveragePoolSpec>(spec).image());
}

}  // namespace pushpull::ops::cuda
