// Convolution on cuDNN, in plain NCHW. Only algorithms that cuDNN declares deterministic are
// candidates; the choice is made when the plan is created and never changes. Source: NVIDIA, cuDNN
// documentation, "Reproducibility (Determinism)" and cudnn_cnn.h.
#include <algorithm>
#include <array>
#include <sstream>
#include <vector>

#include "common/base/console.h"
#include "common/device/cuda_check.h"
#include "models/ops/cuda/convolution.h"
#include "models/ops/cuda/cudnn_library.h"
#include "models/ops/cuda/passes.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

namespace {

constexpr size_t kMaxWorkspace = size_t{256} << 20;  // bytes; Fourier transforms ask for gigabytes
constexpr int kMaxResults = 16;                      // twice the number of cuDNN's algorithms

enum Direction { kForward, kBackwardWeights, kBackwardData };

template <auto Cudnn::*Function, class Handle>
cudnnStatus_t destroy(Handle handle) {
  return (cudnn()->*Function)(handle);
}

using TensorDescription =
    device::UniqueHandle<cudnnTensorDescriptor_t,
                         destroy<&Cudnn::cudnnDestroyTensorDescriptor, cudnnTensorDescriptor_t>>;
using FilterDescription =
    device::UniqueHandle<cudnnFilterDescriptor_t,
                         destroy<&Cudnn::cudnnDestroyFilterDescriptor, cudnnFilterDescriptor_t>>;
using ConvolutionDescription = device::UniqueHandle<
    cudnnConvolutionDescriptor_t,
    destroy<&Cudnn::cudnnDestroyConvolutionDescriptor, cudnnConvolutionDescriptor_t>>;

// Returns the backend's handle: created with its first convolution, destroyed with its last.
std::shared_ptr<cudnnContext> handle_of(Shared& shared) {
  if (auto handle = shared.cudnn.lock()) return std::static_pointer_cast<cudnnContext>(handle);
  cudnnHandle_t made = nullptr;
  check(cudnn()->cudnnCreate(&made), "cudnnCreate");
  // destroy it on the device that it was created on
  std::shared_ptr<cudnnContext> handle(made, [index = shared.index](cudnnContext* gone) {
    cudaSetDevice(index);
    const cudnnStatus_t status = cudnn()->cudnnDestroy(gone);
    if (status != CUDNN_STATUS_SUCCESS) device::log_failed_end("cuDNN's handle", status, nullptr);
  });
  check(cudnn()->cudnnSetStream(made, shared.stream), "cudnnSetStream");
  shared.cudnn = handle;
  return handle;
}

cudnnDataType_t data_type(Precision precision) {
  if (precision == Precision::kBf16) return CUDNN_DATA_BFLOAT16;
  return precision == Precision::kFp16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

// Returns the lowest precision that cuDNN may compute with. For f32 it must be requested, because
// the default allows less.
cudnnMathType_t math_type(Precision precision) {
  if (precision == Precision::kFp32) return CUDNN_FMA_MATH;
  return precision == Precision::kTf32 ? CUDNN_DEFAULT_MATH : CUDNN_TENSOR_OP_MATH;
}

// An algorithm together with its math type: another math type means another kernel, or none.
struct Kernel {
  int algorithm = 0;
  int math = 0;
  size_t workspace = 0;  // bytes

  // "1/3", with the numbers of cudnn_ops.h and cudnn_graph.h.
  std::string name() const { return std::to_string(algorithm) + "/" + std::to_string(math); }
};

class CudnnConvolution final : public Operation {
 public:
  CudnnConvolution(Shared& shared, const ConvolutionShape& shape)
      : shared_(shared),
        shape_(shape),
        weight_count_(shape.outputs * shape.input.channels * shape.kernel * shape.kernel),
        element_bytes_(shared.short_activations() ? 2 : 4),
        handle_(handle_of(shared)),
        weights_(shared, weight_count_) {
    describe();
  }

  // Chooses the kernels. Returns false if cuDNN has no deterministic algorithm for some direction.
  bool pick() {
    for (const Direction direction : directions()) {
      const std::vector<Kernel> all = candidates(direction);
      size_t workspace = 0;
      for (const Kernel& kernel : all) workspace = std::max(workspace, kernel.workspace);
      const size_t x = padded(workspace);
      const size_t w = x + padded(x_bytes());
      const size_t y = w + padded(w_bytes());
      const device::Memory memory = shared_.device->allocate(y + padded(y_bytes()));
      auto* const at = static_cast<std::byte*>(memory.data());
      const int best = choose(shared_, static_cast<int>(all.size()), [&](int i) {
        return convolve(direction, all[static_cast<size_t>(i)], at + x, at + w, at + y, at) ==
               CUDNN_STATUS_SUCCESS;
      });
      PP_CUDA(cudaStreamSynchronize(shared_.stream));  // before the operands are freed
      if (best < 0) return false;
      kernels_[direction] = all[static_cast<size_t>(best)];
    }
    reserve();
    return true;
  }

  // Adopts a value written by `text`. Returns false if it names no candidate.
  bool adopt(const std::string& value) {
    std::istringstream words(value);
    std::string word;
    if (!(words >> word) || word != "cudnn") return false;
    for (const Direction direction : directions()) {
      if (!(words >> word)) return false;
      const std::vector<Kernel> all = candidates(direction);
      const auto found =
          std::find_if(all.begin(), all.end(), [&](const Kernel& k) { return k.name() == word; });
      if (found == all.end()) return false;
      kernels_[direction] = *found;
    }
    reserve();
    return !(words >> word);
  }

  // "cudnn 1/3 0/3 1/3": one kernel per direction.
  std::string text() const {
    std::string text = "cudnn";
    for (const Direction direction : directions()) {
      text += ' ' + kernels_[direction].name();
    }
    return text;
  }

  // Keeps nothing from forward to backward.
  Needs needs() const override { return {.inputs = 1, .splits = true}; }

  void forward(const Run& run) override {
    enqueue(kForward, image(run.x[0].data), weights_in(weights_.of_forward(run.w[0])), run.y.data);
    if (shape_.bias) add_bias(shared_, shape_.output(), run.w[1], run.y.data);
  }

  void backward_weights(const Run& run) override {
    const void* dy = run.dy.data;
    float* dw = run.dw[0];
    if (shape_.bias) sum_channels(shared_, shape_.output(), dy, run.dw[1]);
    const bool direct = element_bytes_ == 4 && shared_.loss_scale == 1.0F && is_aligned(dw);
    void* const to = direct ? dw : place_in_scratch(shared_, gradient_at_);
    enqueue(kBackwardWeights, image(run.x[0].data), to, dy);
    // the library's gradient has the activations' type and is scaled
    if (!direct) widen(shared_, to, weight_count_, 1.0F / shared_.loss_scale, dw);
  }

  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    enqueue(kBackwardData, run.dx[0].data, weights_in(weights_.of_backward(run.w[0])), run.dy.data);
  }

 private:
  std::vector<Direction> directions() const {
    if (!shape_.input_gradient) return {kForward, kBackwardWeights};
    return {kForward, kBackwardWeights, kBackwardData};
  }

  size_t x_bytes() const { return static_cast<size_t>(shape_.input.size()) * element_bytes_; }
  size_t w_bytes() const { return static_cast<size_t>(weight_count_) * element_bytes_; }
  size_t y_bytes() const { return static_cast<size_t>(shape_.output().size()) * element_bytes_; }

  void describe() {
    const cudnnDataType_t type = data_type(shared_.precision);
    const auto image = [type](const ImageShape& s, TensorDescription& to) {
      check(cudnn()->cudnnCreateTensorDescriptor(to.put()), "cudnnCreateTensorDescriptor");
      check(
          cudnn()->cudnnSetTensor4dDescriptor(
              to.get(), CUDNN_TENSOR_NCHW, type, static_cast<int>(s.samples),
              static_cast<int>(s.channels), static_cast<int>(s.height), static_cast<int>(s.width)),
          "cudnnSetTensor4dDescriptor");
    };
    image(shape_.input, x_);
    image(shape_.output(), y_);
    const auto kernel = static_cast<int>(shape_.kernel);
    check(cudnn()->cudnnCreateFilterDescriptor(w_.put()), "cudnnCreateFilterDescriptor");
    check(cudnn()->cudnnSetFilter4dDescriptor(
              w_.get(), type, CUDNN_TENSOR_NCHW, static_cast<int>(shape_.outputs),
              static_cast<int>(shape_.input.channels), kernel, kernel),
          "cudnnSetFilter4dDescriptor");
    const auto padding = static_cast<int>(shape_.padding);
    const auto stride = static_cast<int>(shape_.stride);
    check(cudnn()->cudnnCreateConvolutionDescriptor(convolution_.put()),
          "cudnnCreateConvolutionDescriptor");
    check(cudnn()->cudnnSetConvolution2dDescriptor(convolution_.get(), padding, padding, stride,
                                                   stride, 1, 1, CUDNN_CROSS_CORRELATION,
                                                   CUDNN_DATA_FLOAT),
          "cudnnSetConvolution2dDescriptor");
  }

  void set_math(int math) {
    check(cudnn()->cudnnSetConvolutionMathType(convolution_.get(),
                                               static_cast<cudnnMathType_t>(math)),
          "cudnnSetConvolutionMathType");
  }

  // Scratch memory: workspace, then copies of unaligned tensors, then the gradient of w.
  void reserve() {
    size_t workspace = 0;
    for (const Kernel& kernel : kernels_) workspace = std::max(workspace, kernel.workspace);
    image_at_ = padded(workspace);
    weights_at_ = image_at_ + (shape_.input_layout == Layout::kPlain ? padded(x_bytes()) : 0);
    gradient_at_ = weights_at_ + padded(w_bytes());
    shared_.need_scratch(gradient_at_ + padded(w_bytes()));
    if (shape_.bias) plan_sum_channels(shared_, shape_.output());
  }

  // Returns the deterministic algorithms, in cuDNN's order, best first.
  std::vector<Kernel> candidates(Direction direction) {
    set_math(math_type(shared_.precision));
    switch (direction) {
      case kForward:
        return candidates<cudnnConvolutionFwdAlgoPerf_t>(
            [&](int count, int* found, auto* results) {
              return cudnn()->cudnnGetConvolutionForwardAlgorithm_v7(
                  handle_.get(), x_.get(), w_.get(), convolution_.get(), y_.get(), count, found,
                  results);
            },
            [&](cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
              return cudnn()->cudnnGetConvolutionForwardWorkspaceSize(handle_.get(), x_.get(),
                                                                      w_.get(), convolution_.get(),
                                                                      y_.get(), algorithm, bytes);
            });
      case kBackwardWeights:
        return candidates<cudnnConvolutionBwdFilterAlgoPerf_t>(
            [&](int count, int* found, auto* results) {
              return cudnn()->cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                  handle_.get(), x_.get(), y_.get(), convolution_.get(), w_.get(), count, found,
                  results);
            },
            [&](cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
              return cudnn()->cudnnGetConvolutionBackwardFilterWorkspaceSize(
                  handle_.get(), x_.get(), y_.get(), convolution_.get(), w_.get(), algorithm,
                  bytes);
            });
      default:
        return candidates<cudnnConvolutionBwdDataAlgoPerf_t>(
            [&](int count, int* found, auto* results) {
              return cudnn()->cudnnGetConvolutionBackwardDataAlgorithm_v7(
                  handle_.get(), w_.get(), y_.get(), convolution_.get(), x_.get(), count, found,
                  results);
            },
            [&](cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
              return cudnn()->cudnnGetConvolutionBackwardDataWorkspaceSize(
                  handle_.get(), w_.get(), y_.get(), convolution_.get(), x_.get(), algorithm,
                  bytes);
            });
    }
  }

  template <class Result, class List, class Size>
  std::vector<Kernel> candidates(List list, Size workspace_of) {
    std::array<Result, kMaxResults> results{};
    int count = 0;
    std::vector<Kernel> kernels;
    if (list(kMaxResults, &count, results.data()) != CUDNN_STATUS_SUCCESS) return kernels;
    for (int i = 0; i < count; ++i) {
      const Result& result = results[static_cast<size_t>(i)];
      if (result.status != CUDNN_STATUS_SUCCESS || result.determinism != CUDNN_DETERMINISTIC) {
        continue;
      }
      Kernel kernel{static_cast<int>(result.algo), static_cast<int>(result.mathType), 0};
      if (shared_.precision == Precision::kFp32) kernel.math = CUDNN_FMA_MATH;
      const bool listed = std::any_of(kernels.begin(), kernels.end(), [&](const Kernel& other) {
        return other.name() == kernel.name();
      });
      if (listed) continue;
      set_math(kernel.math);
      if (workspace_of(result.algo, &kernel.workspace) == CUDNN_STATUS_SUCCESS &&
          kernel.workspace <= kMaxWorkspace) {
        kernels.push_back(kernel);
      }
    }
    return kernels;
  }

  // x, w, y: the tensors or their gradients; the direction determines which one is written.
  cudnnStatus_t convolve(Direction direction, const Kernel& kernel, void* x, void* w, void* y,
                         void* workspace) {
    const float one = 1.0F;
    const float zero = 0.0F;
    set_math(kernel.math);
    switch (direction) {
      case kForward:
        return cudnn()->cudnnConvolutionForward(
            handle_.get(), &one, x_.get(), x, w_.get(), w, convolution_.get(),
            static_cast<cudnnConvolutionFwdAlgo_t>(kernel.algorithm), workspace, kernel.workspace,
            &zero, y_.get(), y);
      case kBackwardWeights:
        return cudnn()->cudnnConvolutionBackwardFilter(
            handle_.get(), &one, x_.get(), x, y_.get(), y, convolution_.get(),
            static_cast<cudnnConvolutionBwdFilterAlgo_t>(kernel.algorithm), workspace,
            kernel.workspace, &zero, w_.get(), w);
      default:
        return cudnn()->cudnnConvolutionBackwardData(
            handle_.get(), &one, w_.get(), w, y_.get(), y, convolution_.get(),
            static_cast<cudnnConvolutionBwdDataAlgo_t>(kernel.algorithm), workspace,
            kernel.workspace, &zero, x_.get(), x);
    }
  }

  void enqueue(Direction direction, const void* x, const void* w, const void* y) {
    // one signature for three directions, each of which writes one of the three
    check(convolve(direction, kernels_[direction], const_cast<void*>(x), const_cast<void*>(w),
                   const_cast<void*>(y), place_in_scratch(shared_, 0)),
          direction == kForward           ? "cudnnConvolutionForward"
          : direction == kBackwardWeights ? "cudnnConvolutionBackwardFilter"
                                          : "cudnnConvolutionBackwardData");
  }

  // Plain images belong to the caller and are not aligned.
  const void* image(const Activation* x) {
    return shape_.input_layout == Layout::kPlain ? stage_in(shared_, x, x_bytes(), image_at_) : x;
  }
  const void* weights_in(const Activation* w) {
    return stage_in(shared_, w, w_bytes(), weights_at_);
  }

  Shared& shared_;
  const ConvolutionShape shape_;
  const int64_t weight_count_;
  const size_t element_bytes_;
  std::shared_ptr<cudnnContext> handle_;
  TensorDescription x_, y_;
  FilterDescription w_;
  ConvolutionDescription convolution_;
  Weights weights_;
  std::array<Kernel, 3> kernels_;
  size_t image_at_ = 0;  // offset in scratch
  size_t weights_at_ = 0;
  size_t gradient_at_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_cudnn_convolution(Shared& shared, const ConvolutionShape& shape,
                                                  const std::string& key) {
  if (cudnn() == nullptr) return nullptr;
  auto made = std::make_unique<CudnnConvolution>(shared, shape);
  if (const std::string* value = chosen(shared, key)) {
    if (!made->adopt(*value)) {
      refuse_choice(shared, key, *value, "is not one of cuDNN's deterministic algorithms");
    }
  } else if (!made->pick()) {
    Log("device").info("[models] " + key +
                       " is computed without cuDNN, which has no deterministic algorithm "
                       "for it on " +
                       shared.device->name());
    return nullptr;
  }
  shared.made.set(key, made->text());
  return made;
}

std::string cudnn_version(const Shared& shared) {
  if (shared.cudnn.expired()) return {};
  const size_t version = cudnn()->cudnnGetVersion();
  return std::to_string(version / kCudnnMajorVersion) + "." +
         std::to_string(version % kCudnnMajorVersion / 100) + "." + std::to_string(version % 100);
}

}  // namespace pushpull::ops::cuda
