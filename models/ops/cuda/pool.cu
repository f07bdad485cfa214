// Pooling.

#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/pool_pass.h"
#include "models/ops/pool.h"

namespace pushpull::ops::cuda {

// Global average pooling: one warp per plane forward, one pass over dx backward.

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

// Max pooling: one thread per few windows of 2x2, and one per window otherwise; a byte per window
// keeps the place of the maximum for backward.

namespace {

template <int kColumns, class T>
__global__ void __launch_bounds__(kBlock)
    pool(const PoolPass pass, const T* x, T* y, uint8_t* winners) {
  const uint32_t unit = blockIdx.x * kBlock + threadIdx.x;
  if (unit < pass.units) pool_forward<kColumns>(pass, unit, x, y, winners);
}

template <int kColumns, class T>
__global__ void __launch_bounds__(kBlock)
    pool_gradients(const PoolPass pass, const T* dy, const uint8_t* winners, T* dx) {
  const uint32_t unit = blockIdx.x * kBlock + threadIdx.x;
  if (unit < pass.units) pool_backward<kColumns>(pass, unit, dy, winners, dx);
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    pool_windows(const WindowPass pass, const T* x, T* y, uint8_t* winners) {
  const uint32_t window = blockIdx.x * kBlock + threadIdx.x;
  if (window < pass.windows) window_forward(pass, window, x, y, winners);
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    pool_window_gradients(const WindowPass pass, const T* dy, const uint8_t* winners, T* dx) {
  const uint32_t element = blockIdx.x * kBlock + threadIdx.x;
  if (element < pass.elements) window_backward(pass, element, dy, winners, dx);
}

template <class T>
class CudaMaxPool final : public Operation {
 public:
  CudaMaxPool(Shared& shared, const MaxPoolShape& shape)
      : shared_(shared),
        shape_(shape),
        is_pair_(shape.kernel == 2 && shape.stride == 2 && shape.padding == 0) {}

  Needs needs() const override {
    return {.kept_bytes = static_cast<size_t>(shape_.output().size())};
  }

  void forward(const Run& run) override {
    const T* x = as<T>(run.x[0].data);
    T* y = as<T>(run.y.data);
    auto* winners = static_cast<uint8_t*>(run.kept);
    if (is_pair_) {
      with_columns(are_aligned({x, y}), [&]<int kColumns>() {
        const PoolPass pass(shape_, kColumns);
        pool<kColumns>
            <<<grid(pieces(pass.units, kBlock)), kBlock, 0, shared_.stream>>>(pass, x, y, winners);
      });
    } else {
      const WindowPass pass(shape_);
      pool_windows<<<grid(pieces(pass.windows, kBlock)), kBlock, 0, shared_.stream>>>(pass, x, y,
                                                                                      winners);
    }
    PP_CUDA_LAUNCHED("max pooling");
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    const T* dy = as<T>(run.dy.data);
    T* dx = as<T>(run.dx[0].data);
    const auto* winners = static_cast<const uint8_t*>(run.kept);
    if (is_pair_) {
      with_columns(are_aligned({dy, dx}), [&]<int kColumns>() {
        const PoolPass pass(shape_, kColumns);
        pool_gradients<kColumns><<<grid(pieces(pass.units, kBlock)), kBlock, 0, shared_.stream>>>(
            pass, dy, winners, dx);
      });
    } else {
      const WindowPass pass(shape_);
      pool_window_gradients<<<grid(pieces(pass.elements, kBlock)), kBlock, 0, shared_.stream>>>(
          pass, dy, winners, dx);
    }
    PP_CUDA_LAUNCHED("max pooling's gradients");
  }

 private:
  template <class Launch>
  void with_columns(bool aligned, const Launch& launch) const {
    switch (pool_columns(shape_.image.width, kPackSize<T>, aligned)) {
      case 8:
        if constexpr (kPackSize<T> == 8) launch.template operator()<8>();
        return;
      case 4:
        return launch.template operator()<4>();
      case 2:
        return launch.template operator()<2>();
      default:
        return launch.template operator()<1>();
    }
  }

  Shared& shared_;
  MaxPoolShape shape_;
  bool is_pair_;  // windows of 2x2 that do not overlap
};

}  // namespace

std::unique_ptr<Operation> make_max_pool(Shared& shared, const Spec& spec) {
  const MaxPoolShape& shape = spec_as<MaxPoolSpec>(spec).shape();
  require_kernel(shape.kernel <= kMaxWindow, shared, spec,
                 "of a window of " + std::to_string(shape.kernel) + ", above " +
                     std::to_string(kMaxWindow) + ", has no kernel");
  return make_typed<CudaMaxPool, Operation>(shared, shape);
}

}  // namespace pushpull::ops::cuda
