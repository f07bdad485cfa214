// The operations that layers are made of. Each is a plan: created once with its shapes, then run on
// raw pointers as often as wanted; a run neither allocates nor creates anything. A backend computes
// them (cpu: oneDNN). One thread at a time per backend.
//
// Tensors are f32, C order. Parameters (w, b, scale, ...) and their gradients are the caller's, in
// PyTorch's layout, aligned to a float only; activations live in the backend's own Buffers. The
// caller's alignment never changes a bit of a result (DESIGN P1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pushpull::ops {

// How an image tensor [N, C, H, W] lies in memory.
enum class Layout {
  kPlain,   // as written: N, C, H, W
  kNative,  // what the backend computes on fastest: channels in blocks, the last one zero-padded
};

// Zeroed memory of a backend, aligned to a cache line or better.
class Buffer {
 public:
  using Free = void (*)(void*);
  Buffer() : memory_(nullptr, nullptr) {}
  Buffer(float* data, size_t size, Free free) : memory_(data, free), size_(size) {}
  float* data() const { return memory_.get(); }
  size_t size() const { return size_; }  // floats

 private:
  std::unique_ptr<float, Free> memory_;
  size_t size_ = 0;
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
  virtual void forward(const float* x, const float* w, const float* b, float* y) = 0;
  // x, y: of forward. dy [N, M]: gradient of y; where `relu`, masked in place, and backward_data
  // needs it masked. -> dw [M, K], db [M], overwritten.
  virtual void backward_weights(const float* x, const float* y, float* dy, float* dw,
                                float* db) = 0;
  // -> dx [N, K], overwritten. After backward_weights.
  virtual void backward_data(const float* dy, const float* w, float* dx) = 0;
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
  virtual void forward(const float* x, const float* w, const float* b, float* y) = 0;
  // -> dw [O, C, k, k], db [O], overwritten.
  virtual void backward_weights(const float* x, const float* dy, float* dw, float* db) = 0;
  // -> dx, overwritten.
  virtual void backward_data(const float* dy, const float* w, float* dx) = 0;
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
  virtual void forward(const float* x, const float* scale, const float* shift, float* mean,
                       float* variance, float* y) = 0;
  // With given statistics.
  virtual void infer(const float* x, const float* scale, const float* shift, const float* mean,
                     const float* variance, float* y) = 0;
  // x, scale, shift: of the latest forward. -> dx, dscale, dshift, overwritten.
  virtual void backward(const float* x, const float* dy, const float* scale, const float* shift,
                        float* dx, float* dscale, float* dshift) = 0;
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
  virtual void forward(const float* x, float* y) = 0;
  // Of the latest forward. dy -> dx, overwritten.
  virtual void backward(const float* dy, float* dx) = 0;
};

// Between the two layouts of one image tensor.
class Relayout {
 public:
  virtual ~Relayout() = default;
  virtual void to_plain(const float* native, float* plain) = 0;
  virtual void to_native(const float* plain, float* native) = 0;
};

// Softmax and cross-entropy against one label per sample, by the log-sum-exp trick.
//   logits [N, M]; labels [N], 0 <= label < M; losses, predictions and labels are host memory.
struct CrossEntropyShape {
  int64_t samples = 0;  // N
  int64_t classes = 0;  // M
};

class CrossEntropy {
 public:
  virtual ~CrossEntropy() = default;
  // losses[n] of the first `count` samples; the rest is not read.
  virtual void forward(const float* logits, const int32_t* labels, int64_t count,
                       float* losses) = 0;
  // Of the latest forward, which had count = N: gradient of the *mean* loss -> dlogits [N, M].
  virtual void backward(const int32_t* labels, float* dlogits) = 0;
  // Index of the largest logit of the first `count` samples; of equal ones, the lowest.
  virtual void predict(const float* logits, int64_t count, int32_t* predictions) = 0;
};

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

  // Throws Error(kFailed) naming the size where memory does not suffice.
  virtual Buffer allocate(size_t floats) = 0;
  // Floats that an image takes.
  virtual size_t image_floats(const ImageShape& shape, Layout layout) const = 0;

  // Called by make_... below, which check the shapes.
  virtual std::unique_ptr<Linear> linear(const LinearShape& shape) = 0;
  virtual std::unique_ptr<Convolution> convolution(const ConvolutionShape& shape) = 0;
  virtual std::unique_ptr<BatchNorm> batch_norm(const BatchNormShape& shape) = 0;
  virtual std::unique_ptr<MaxPool> max_pool(const MaxPoolShape& shape) = 0;
  virtual std::unique_ptr<Relayout> relayout(const ImageShape& shape) = 0;
  virtual std::unique_ptr<CrossEntropy> cross_entropy(const CrossEntropyShape& shape) = 0;

 private:
  virtual int enter() = 0;
  virtual void leave(int saved) = 0;
};

// threads: compute threads, the number that results depend on. Throws Error(kUsage) where the
// process may not have that many (OMP_THREAD_LIMIT).
std::unique_ptr<Backend> make_cpu_backend(int threads);

// Plans. A shape that cannot be is our mistake (PP_ASSERT); one that the device cannot hold is
// Error(kFailed).
std::unique_ptr<Linear> make_linear(Backend& backend, const LinearShape& shape);
std::unique_ptr<Convolution> make_convolution(Backend& backend, const ConvolutionShape& shape);
std::unique_ptr<BatchNorm> make_batch_norm(Backend& backend, const BatchNormShape& shape);
std::unique_ptr<MaxPool> make_max_pool(Backend& backend, const MaxPoolShape& shape);
std::unique_ptr<Relayout> make_relayout(Backend& backend, const ImageShape& shape);
std::unique_ptr<CrossEntropy> make_cross_entropy(Backend& backend, const CrossEntropyShape& shape);

}  // namespace pushpull::ops
