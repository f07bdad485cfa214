// The operations that layers are made of. Each is a plan: created once with its shapes, then run on
// raw pointers as often as wanted; a run neither allocates nor creates anything. A backend computes
// them (cpu: oneDNN; cuda: cuBLASLt, cuDNN and kernels of our own). One thread at a time per
// backend.
//
// All pointers are memory of the backend. A run takes effect in the backend's order: on the cpu it
// is done on return, on a device it is enqueued behind the runs before. Parameters (w, b, scale,
// ...) and their gradients are f32 in PyTorch's layout, aligned to a float only; activations are of
// the backend's own type, in C order, and live in its Buffers. The caller's alignment never changes
// a bit of a result (DESIGN P1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "common/device/device.h"

namespace pushpull::ops {

// An element of an image, of a row, or of a gradient of these: f32 on the cpu, what Precision says
// on a device.
using Activation = void;

// What a device computes on; sums, parameters and their gradients are f32 always.
enum class Precision {
  kFp32,
  kTf32,  // activations are f32, products of matrices round their factors to 11 bits
  kBf16,
  kFp16,
};

// "fp32", "tf32", "bf16", "fp16".
const char* to_string(Precision precision);
// Throws Error(kUsage) that lists them.
Precision parse_precision(const std::string& text);

// How an image tensor [N, C, H, W] lies in memory.
enum class Layout {
  kPlain,   // as written: N, C, H, W
  kNative,  // what the backend computes on fastest: channels in blocks, the last one zero-padded
};

// Zeroed memory of a backend, aligned to a cache line or better. Counted in floats also where
// activations are shorter: they then use half of it.
class Buffer {
 public:
  using Free = device::Memory::Free;
  Buffer() = default;
  Buffer(float* data, size_t size, Free free) : memory_(data, size * sizeof(float), free) {}
  explicit Buffer(device::Memory memory) : memory_(std::move(memory)) {}
  float* data() const { return memory_.floats(); }
  size_t size() const { return memory_.size() / sizeof(float); }  // floats

 private:
  device::Memory memory_;
};

struct ImageShape {
  int64_t samples = 0;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t size() const { return samples * channels * height * width; }
};

// y = x wᵀ + b, then max(y, 0) where `relu`.
//   x [N, K], w [M, K], b [M] -> y [N, M].
struct LinearShape {
  int64_t samples = 0;  // N
  int64_t inputs = 0;   // K
  int64_t outputs = 0;  // M
  bool relu = false;
};

class Linear {
 public:
  virtual ~Linear() = default;
  virtual void forward(const Activation* x, const float* w, const float* b, Activation* y) = 0;
  // x, y: of forward. dy [N, M]: gradient of y; where `relu`, masked in place, and backward_data
  // needs it masked. -> dw [M, K], db [M], overwritten.
  virtual void backward_weights(const Activation* x, const Activation* y, Activation* dy, float* dw,
                                float* db) = 0;
  // -> dx [N, K], overwritten. After backward_weights.
  virtual void backward_data(const Activation* dy, const float* w, Activation* dx) = 0;
};

// y = x * w + b: cross-correlation with stride 1, as torch.nn.Conv2d.
//   x [N, C, H, W], w [O, C, k, k], b [O] -> y [N, O, H + 2 padding - k + 1, ...], kNative.
struct ConvolutionShape {
  ImageShape input;
  int64_t outputs = 0;                    // O
  int64_t kernel = 1;                     // k
  int64_t padding = 0;                    // zeros at each edge
  Layout input_layout = Layout::kNative;  // of x; kPlain is for the first layer
  bool input_gradient = true;             // backward_data will be called; needs kNative
  ImageShape output() const;
};

class Convolution {
 public:
  virtual ~Convolution() = default;
  virtual void forward(const Activation* x, const float* w, const float* b, Activation* y) = 0;
  // -> dw [O, C, k, k], db [O], overwritten.
  virtual void backward_weights(const Activation* x, const Activation* dy, float* dw,
                                float* db) = 0;
  // -> dx, overwritten.
  virtual void backward_data(const Activation* dy, const float* w, Activation* dx) = 0;
};

// y = (x - mean) / sqrt(variance + epsilon) * scale + shift per channel, then max(y, 0) where
// `relu`. All image tensors kNative; vectors [C]. Source: Ioffe & Szegedy, arXiv 1502.03167.
struct BatchNormShape {
  ImageShape image;  // samples * height * width > 1
  float epsilon = 1e-5F;
  bool relu = false;
};

class BatchNorm {
 public:
  virtual ~BatchNorm() = default;
  // With the batch's own statistics, which are handed out: mean and unbiased variance, as PyTorch's
  // running_var collects it (y itself uses the biased one).
  virtual void forward(const Activation* x, const float* scale, const float* shift, float* mean,
                       float* variance, Activation* y) = 0;
  // With given statistics.
  virtual void infer(const Activation* x, const float* scale, const float* shift, const float* mean,
                     const float* variance, Activation* y) = 0;
  // x, scale, shift: of the latest forward. -> dx, dscale, dshift, overwritten.
  virtual void backward(const Activation* x, const Activation* dy, const float* scale,
                        const float* shift, Activation* dx, float* dscale, float* dshift) = 0;
};

// Largest of each 2x2 window, stride 2; an odd last row or column is dropped, as PyTorch does.
//   x [N, C, H, W] -> y [N, C, H/2, W/2], both kNative.
struct MaxPoolShape {
  ImageShape image;  // height and width > 1
  ImageShape output() const;
};

class MaxPool {
 public:
  virtual ~MaxPool() = default;
  virtual void forward(const Activation* x, Activation* y) = 0;
  // Of the latest forward. dy -> dx, overwritten.
  virtual void backward(const Activation* dy, Activation* dx) = 0;
};

// Between the two layouts of one image tensor.
class Relayout {
 public:
  virtual ~Relayout() = default;
  virtual void to_plain(const Activation* native, Activation* plain) = 0;
  virtual void to_native(const Activation* plain, Activation* native) = 0;
};

// Floats as activations and back, element by element, for what comes in and what is looked at.
class Elements {
 public:
  virtual ~Elements() = default;
  // `floats` itself where activations are f32; else a copy, valid until the next call.
  virtual const Activation* in(const float* floats) = 0;
  virtual void out(const Activation* activations, float* floats) = 0;
};

// Softmax and cross-entropy against one label per sample, by the log-sum-exp trick.
//   logits [N, M]; labels [N], 0 <= label < M: check_labels, while they are still on the host.
struct CrossEntropyShape {
  int64_t samples = 0;  // N
  int64_t classes = 0;  // M
};

class CrossEntropy {
 public:
  virtual ~CrossEntropy() = default;
  // losses[n] of the first `count` samples; the rest is not read.
  virtual void forward(const Activation* logits, const int32_t* labels, int64_t count,
                       float* losses) = 0;
  // Of the latest forward, which had count = N: gradient of the *mean* loss, times the backend's
  // loss scale, which parameters' gradients are free of again -> dlogits [N, M].
  virtual void backward(const int32_t* labels, Activation* dlogits) = 0;
  // Index of the largest logit of the first `count` samples; of equal ones, the lowest.
  virtual void predict(const Activation* logits, int64_t count, int32_t* predictions) = 0;
};

// Labels in host memory, of the first samples: a wrong one is our mistake (PP_ASSERT).
void check_labels(const CrossEntropyShape& shape, std::span<const int32_t> labels);

// Holds the device, its threads and the scratch memory that its operations share; outlives them.
class Backend {
 public:
  virtual ~Backend() = default;

  // Around every use of the backend's operations, and their creation: sets the number of compute
  // threads of the calling thread, and sets it back.
  class Scope {
   public:
    explicit Scope(Backend& backend) : backend_(backend), saved_(backend.enter()) {}
    ~Scope() { backend_.leave(saved_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Backend& backend_;
    int saved_;
  };

  // Throws Error(kFailed | kDevice) naming the size where memory does not suffice.
  virtual Buffer allocate(size_t floats) = 0;
  // Floats that an image takes.
  virtual size_t image_floats(const ImageShape& shape, Layout layout) const = 0;

  // Between host memory and ours, behind all runs before; done on return. For tests and evaluation.
  virtual void write(const void* host, size_t bytes, void* to) = 0;
  virtual void read(const void* from, size_t bytes, void* host) = 0;

  // Null: memory is the host's, and a run is done on return.
  virtual std::shared_ptr<device::Device> device() const { return nullptr; }
  // The stream that runs are enqueued on; only where there is a device.
  virtual device::Stream& stream();

  // What equal bits depend on, for the handshake.
  virtual std::string numerics() const = 0;
  // Algorithms that the plans made so far have taken, where a library has several; "" where there
  // is nothing to choose (models/ops/choices.h).
  virtual std::string choices() const { return {}; }
  // Plans made from here on take these; those made before are to be dropped first. A backend with
  // nothing to choose takes no notice. Throws Error(kProtocol) for a text that is none.
  virtual void choose(const std::string& /*choices*/) {}

  // Called by make_... below, which check the shapes.
  virtual std::unique_ptr<Linear> linear(const LinearShape& shape) = 0;
  virtual std::unique_ptr<Convolution> convolution(const ConvolutionShape& shape) = 0;
  virtual std::unique_ptr<BatchNorm> batch_norm(const BatchNormShape& shape) = 0;
  virtual std::unique_ptr<MaxPool> max_pool(const MaxPoolShape& shape) = 0;
  virtual std::unique_ptr<Relayout> relayout(const ImageShape& shape) = 0;
  virtual std::unique_ptr<Elements> elements(int64_t count) = 0;
  virtual std::unique_ptr<CrossEntropy> cross_entropy(const CrossEntropyShape& shape) = 0;

 private:
  virtual int enter() = 0;
  virtual void leave(int saved) = 0;
};

struct BackendOptions {
  device::DeviceName device;  // the cpu or one CUDA device
  int threads = 1;            // cpu: compute threads, the number that results depend on
  Precision precision = Precision::kFp32;
  float loss_scale = 1.0F;  // a power of two
  bool measure = true;      // cuda: algorithms are chosen by time; false: by heuristic
};

// Throws Error(kUsage | kDevice) that names the device and the way out.
std::unique_ptr<Backend> make_backend(const BackendOptions& options);
// Throws Error(kUsage) where the process may not have that many threads (OMP_THREAD_LIMIT).
std::unique_ptr<Backend> make_cpu_backend(int threads);
// In a build without CUDA: throws Error(kDevice) that says so.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

// Plans. A shape that cannot be is our mistake (PP_ASSERT); one that the device cannot hold is
// Error(kFailed).
std::unique_ptr<Linear> make_linear(Backend& backend, const LinearShape& shape);
std::unique_ptr<Convolution> make_convolution(Backend& backend, const ConvolutionShape& shape);
std::unique_ptr<BatchNorm> make_batch_norm(Backend& backend, const BatchNormShape& shape);
std::unique_ptr<MaxPool> make_max_pool(Backend& backend, const MaxPoolShape& shape);
std::unique_ptr<Relayout> make_relayout(Backend& backend, const ImageShape& shape);
std::unique_ptr<Elements> make_elements(Backend& backend, int64_t count);
std::unique_ptr<CrossEntropy> make_cross_entropy(Backend& backend, const CrossEntropyShape& shape);

}  // namespace pushpull::ops
