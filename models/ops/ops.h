// The backends of operations, with their memory (cpu: oneDNN; cuda: cuBLASLt, cuDNN and our own
// kernels). A backend plans an operation from its specification (models/ops/operation.h). A backend
// is not thread-safe.
//
// All pointers are memory of the backend. Runs take effect in order: on the CPU a run is done on
// return; on a device it is enqueued behind earlier runs. Parameters (w, b, scale, ...) and their
// gradients are f32 in PyTorch's layout and need only be aligned to a float. Activations have the
// type given by Precision, are in C order unless they are images in kNative, and live in the
// backend's Buffers. The caller's alignment never changes a bit of a result (P1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/device/device.h"

namespace pushpull::ops {

// Arithmetic of a backend. Sums, parameters and their gradients are always f32.
enum class Precision {
  kFp32,
  kTf32,  // f32 activations; matrix products round their factors to 11 bits
  kBf16,
  kFp16,
};

// Returns "fp32", "tf32", "bf16" or "fp16".
const char* to_string(Precision precision);
// Throws Error(kUsage) that lists the valid names.
Precision parse_precision(const std::string& text);

// The memory layout of an image tensor [N, C, H, W].
enum class Layout {
  kPlain,   // N, C, H, W
  kNative,  // the backend's fastest: channels in blocks, the last one zero-padded
};

// Zeroed memory of a backend, aligned to at least a cache line. Sizes are in floats even for 16-bit
// activations, which use half of it.
class Buffer {
 public:
  using Free = device::Memory::Free;
  Buffer() = default;
  Buffer(float* data, size_t size, Free free) : memory_(data, size * sizeof(float), free) {}
  explicit Buffer(device::Memory memory) : memory_(std::move(memory)) {}
  float* data() const { return memory_.floats(); }
  size_t size() const { return memory_.size() / sizeof(float); }  // in floats

 private:
  device::Memory memory_;
};

struct ImageShape {
  int64_t samples = 0;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t size() const { return samples * channels * height * width; }
  // Returns the shape of the windows of kernel x kernel elements, with `padding` more elements at
  // each edge. Rows and columns that fill no window are dropped.
  ImageShape windows(int64_t kernel, int64_t padding, int64_t stride) const;
};

class Operation;
class Spec;

// Owns the device, its threads and the scratch memory that its operations share. Must outlive the
// operations.
class Backend {
 public:
  virtual ~Backend() = default;

  // Put a Scope around every use of the backend's operations, and their creation: on the CPU it
  // sets the calling thread's number of compute threads and restores it at the end; on a device it
  // makes the device current.
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

  // Throws Error(kFailed | kDevice), which names the size, if memory is short.
  virtual Buffer allocate(size_t floats) = 0;
  // Returns the number of floats that an image needs in this layout.
  virtual size_t image_floats(const ImageShape& shape, Layout layout) const = 0;

  // Returns the size of an activation.
  virtual size_t activation_bytes() const { return sizeof(float); }

  // Copies between host memory and the backend's, after all earlier runs; done on return. For tests
  // and evaluation.
  virtual void write(const void* host, size_t bytes, void* to) = 0;
  virtual void read(const void* from, size_t bytes, void* host) = 0;

  // Returns null if the backend's memory is the host's and a run is done on return.
  virtual std::shared_ptr<device::Device> device() const { return nullptr; }
  // Returns the stream that runs are enqueued on. Call only if there is a device.
  virtual device::Stream& stream();

  // Returns, as text, everything that the bits of results depend on. For the handshake.
  virtual std::string numerics() const = 0;
  // Returns the algorithms of the plans made so far, if a library offers several; "" if there is no
  // choice (models/ops/choices.h).
  virtual std::string choices() const { return {}; }
  // Makes later plans use these algorithms; drop earlier plans first. A backend without choices
  // ignores it. Throws Error(kProtocol) for an invalid text.
  virtual void choose(const std::string& /*choices*/) {}

  // Plans an operation. Call Spec::check first. Throws Error(kUsage) that names the operation and
  // the device, if there is no kernel for it or for its shape; Error(kFailed | kDevice) if memory
  // is short.
  virtual std::unique_ptr<Operation> plan(const Spec& spec);
  // Returns the name of the device for messages.
  std::string device_name() const;

 private:
  virtual int enter() = 0;
  virtual void leave(int saved) = 0;
};

struct BackendOptions {
  device::DeviceName device;  // the CPU or one CUDA device
  int threads = 1;            // CPU: compute threads; results depend on their number
  Precision precision = Precision::kFp32;
  float loss_scale = 1.0F;  // a power of two
  bool measure = false;     // CUDA: choose algorithms by time; if false, by the library's order
};

// Throws Error(kUsage | kDevice), which names the device and how to fix it.
std::unique_ptr<Backend> make_backend(const BackendOptions& options);
//   precision: kFp32, or kBf16 if cpu_has_bf16().
// Throws Error(kUsage) for another precision, or if the process may not have that many threads
// (OMP_THREAD_LIMIT).
std::unique_ptr<Backend> make_cpu_backend(int threads, Precision precision = Precision::kFp32);
// Returns whether this processor computes in bf16 (AVX512_BF16, which AMX-BF16 implies) and
// DNNL_MAX_CPU_ISA does not hide it.
bool cpu_has_bf16();
// Throws Error(kDevice) in a build without CUDA.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

}  // namespace pushpull::ops
