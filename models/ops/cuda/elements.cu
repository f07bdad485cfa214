// Conversions between floats and activations, and between the image layouts, which are the same
// here.
#include "models/ops/cuda/flat_pass.h"
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/operations.h"

namespace pushpull::ops::cuda {

namespace {

template <class From, class To, bool kPacked>
__global__ void __launch_bounds__(kBlock) convert_all(const From* from, int64_t count, To* to) {
  convert<From, To, kPacked>(from, count, blockIdx.x, static_cast<int>(threadIdx.x), to);
}

void copy(const Shared& shared, const void* from, size_t bytes, void* to) {
  PP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, shared.stream));
}

// For f32 activations.
class SameElements final : public Elements {
 public:
  SameElements(Shared& shared, int64_t count) : shared_(shared), count_(count) {}

  const Activation* in(const float* floats) override { return floats; }
  void out(const Activation* activations, float* floats) override {
    copy(shared_, activations, static_cast<size_t>(count_) * sizeof(float), floats);
  }

 private:
  Shared& shared_;
  int64_t count_;
};

template <class T>
class ShortElements final : public Elements {
 public:
  ShortElements(Shared& shared, int64_t count)
      : shared_(shared),
        count_(count),
        in_(shared.device->allocate(static_cast<size_t>(count) * sizeof(T))) {}

  const Activation* in(const float* floats) override {
    run(floats, static_cast<T*>(in_.data()));
    return in_.data();
  }
  void out(const Activation* activations, float* floats) override {
    run(as<T>(activations), floats);
  }

 private:
  template <class From, class To>
  void run(const From* from, To* to) {
    const bool packed = is_aligned(from) && is_aligned(to);
    const auto kernel = packed ? convert_all<From, To, true> : convert_all<From, To, false>;
    kernel<<<grid(flat_blocks(count_)), kBlock, 0, shared_.stream>>>(from, count_, to);
    PP_CUDA_LAUNCHED("the conversion of elements");
  }

  Shared& shared_;
  int64_t count_;
  device::Memory in_;
};

class CudaRelayout final : public Relayout {
 public:
  CudaRelayout(Shared& shared, const ImageShape& shape)
      : shared_(shared),
        bytes_(static_cast<size_t>(shape.size()) * (shared.short_activations() ? 2 : 4)) {}

  void to_plain(const Activation* native, Activation* plain) override {
    copy(shared_, native, bytes_, plain);
  }
  void to_native(const Activation* plain, Activation* native) override {
    copy(shared_, plain, bytes_, native);
  }

 private:
  Shared& shared_;
  size_t bytes_;
};

}  // namespace

std::unique_ptr<Elements> make_elements(Shared& shared, int64_t count) {
  if (!shared.short_activations()) return std::make_unique<SameElements>(shared, count);
  if (shared.precision == Precision::kBf16) {
    return std::make_unique<ShortElements<Bf16>>(shared, count);
  }
  return std::make_unique<ShortElements<Fp16>>(shared, count);
}

std::unique_ptr<Relayout> make_relayout(Shared& shared, const ImageShape& shape) {
  return std::make_unique<CudaRelayout>(shared, shape);
}

}  // namespace pushpull::ops::cuda
