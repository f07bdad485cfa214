// Max pooling: one thread per few windows; a byte per window stores the winner's position.
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/max_pool_pass.h"
#include "models/ops/cuda/operations.h"

namespace pushpull::ops::cuda {

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
class CudaMaxPool final : public MaxPool {
 public:
  CudaMaxPool(Shared& shared, const MaxPoolShape& shape)
      : shared_(shared),
        shape_(shape),
        winners_(shared.device->allocate(static_cast<size_t>(shape.output().size()))) {}

  void forward(const Activation* x, Activation* y) override {
    const auto launch = [&]<int kColumns>() {
      const PoolPass pass(shape_, kColumns);
      pool<kColumns><<<grid(pieces(pass.units, kBlock)), kBlock, 0, shared_.stream>>>(
          pass, as<T>(x), as<T>(y), static_cast<uint8_t*>(winners_.data()));
    };
    with_columns(is_aligned(x) && is_aligned(y), launch);
    PP_CUDA_LAUNCHED("max pooling");
  }

  void backward(const Activation* dy, Activation* dx) override {
    const auto launch = [&]<int kColumns>() {
      const PoolPass pass(shape_, kColumns);
      pool_gradients<kColumns><<<grid(pieces(pass.units, kBlock)), kBlock, 0, shared_.stream>>>(
          pass, as<T>(dy), static_cast<const uint8_t*>(winners_.data()), as<T>(dx));
    };
    with_columns(is_aligned(dy) && is_aligned(dx), launch);
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
  device::Memory winners_;  // of the latest forward, one byte per window
};

}  // namespace

std::unique_ptr<MaxPool> make_max_pool(Shared& shared, const MaxPoolShape& shape) {
  return make_typed<CudaMaxPool, MaxPool>(shared, shape);
}

}  // namespace pushpull::ops::cuda
