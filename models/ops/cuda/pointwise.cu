// Operations on each element.

#include "models/ops/cuda/flat_pass.h"
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/pointwise_pass.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/pointwise.h"

namespace pushpull::ops::cuda {

// Activation functions, in one pass each way.

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

// The sum of two values. Both gradients are copies; the first one may stay where it is.

namespace {

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock) add_values(const T* a, const T* b, int64_t count, T* y) {
  add<T, kPacked>(a, b, count, blockIdx.x, static_cast<int>(threadIdx.x), y);
}

template <class T>
class CudaAdd final : public Operation {
 public:
  CudaAdd(Shared& shared, int64_t count) : shared_(shared), count_(count) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }

  void forward(const Run& run) override {
    const T* a = as<T>(run.x[0].data);
    const T* b = as<T>(run.x[1].data);
    T* y = as<T>(run.y.data);
    const auto kernel = are_aligned({a, b, y}) ? add_values<T, true> : add_values<T, false>;
    kernel<<<grid(flat_blocks(count_)), kBlock, 0, shared_.stream>>>(a, b, count_, y);
    PP_CUDA_LAUNCHED("a sum");
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    for (const size_t i : {0, 1}) {
      void* dx = run.dx[i].data;
      if (dx == nullptr || dx == run.dy.data) continue;
      copy(shared_, run.dy.data, static_cast<size_t>(count_) * sizeof(T), dx);
    }
  }

 private:
  Shared& shared_;
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_add(Shared& shared, const Spec& spec) {
  const ValueType type = spec.output();
  // gradients of parameters are f32 whatever activations are
  if (type.element == Element::kFloat) {
    return std::make_unique<CudaAdd<float>>(shared, type.shape.size());
  }
  return make_typed<CudaAdd, Operation>(shared, type.shape.size());
}

// Dropout with the mask of the CPU: the key lies in memory of the device, so that a captured run may
// be launched again with another one.

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

// A field of floats as activations: a view if activations are f32, and a 16-bit copy otherwise. The
// copy lies in the memory of its run, so several micro-batches may be between forward and backward.

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

// Flattening: images are plain NCHW on a device, so their rows are the same bytes.

namespace {

class CudaFlatten final : public Operation {
 public:
  CudaFlatten(Shared& shared, const ImageShape& image)
      : shared_(shared),
        bytes_(static_cast<size_t>(image.size()) * (shared.short_activations() ? 2 : 4)) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }
  void forward(const Run& run) override { move(run.x[0].data, run.y.data); }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data != nullptr) move(run.dy.data, run.dx[0].data);
  }

 private:
  void move(const void* from, void* to) {
    if (from != to) copy(shared_, from, bytes_, to);
  }

  Shared& shared_;
  size_t bytes_;
};

}  // namespace

std::unique_ptr<Operation> make_flatten(Shared& shared, const Spec& spec) {
  return std::make_unique<CudaFlatten>(shared, spec_as<FlattenSpec>(spec).image());
}

}  // namespace pushpull::ops::cuda
