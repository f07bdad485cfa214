// What the operations of a CUDA backend share, and how it chooses among algorithms.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/base/host_device.h"
#include "common/device/device.h"
#include "models/ops/choices.h"
#include "models/ops/number.h"
#include "models/ops/operation.h"
#include "models/ops/ops.h"

namespace pushpull::ops::cuda {

// State shared by all operations of one CUDA backend. They run inside the backend's Scope, which
// makes its device current on the calling thread.

// An element of an image, a row, or their gradients: of the type given by Shared::precision.
using Activation = void;

struct Shared {
  std::shared_ptr<device::Device> device;
  int index = 0;                  // of the device
  cudaStream_t stream = nullptr;  // compute; the backend's
  cublasLtHandle_t lt = nullptr;  // of the backend
  Precision precision = Precision::kFp32;
  float loss_scale = 1.0F;
  bool measure = false;       // choose algorithms by time; if false, by the library's order
  Choices given;              // the job's choices; a plan looks up its key
  Choices made;               // the choices made by our plans
  std::weak_ptr<void> cudnn;  // cuDNN's handle, which the convolutions own together
  device::Memory scratch;     // workspace of cuBLASLt and cuDNN, used by one run at a time

  // Grows scratch. Only plans do so, never runs; ask for its address in each run.
  void need_scratch(size_t bytes);
  // Returns zeroed memory. Throws Error(kDevice) with the requested size and the free memory.
  Buffer buffer(size_t floats);

  bool short_activations() const {
    return precision == Precision::kBf16 || precision == Precision::kFp16;
  }
};

// The factor of the gradient of a head's scores, for its kernels.
//
// Run::scale, which lies in memory of the device, times the loss scale.
struct HeadScale {
  const float* scale = nullptr;
  float loss_scale = 1.0F;

  HeadScale(const Shared& shared, const Run& run)
      : scale(run.scale), loss_scale(shared.loss_scale) {}
  PP_HOST_DEVICE float value() const { return *scale * loss_scale; }
};

// Copies unaligned tensors through scratch memory. Libraries expect tensors aligned to 16 bytes,
// but those of the flat vector are aligned to a float only. With the copies the same algorithm runs
// on all: a tensor's address changes no bit (P1). Used on the backend's thread.
inline constexpr size_t kAlignment = 16;  // bytes; what is_aligned checks

// Returns `bytes` rounded up to kAlignment.
size_t padded(size_t bytes);

// place_in_scratch returns an address in scratch memory. `stage_in` copies `from` there if it is
// not aligned, and returns the address of the aligned tensor.
//   place: bytes from the start of Shared::scratch.
void* place_in_scratch(const Shared& shared, size_t place);
const void* stage_in(Shared& shared, const void* from, size_t bytes, size_t place);
void copy(Shared& shared, const void* from, size_t bytes, void* to);

// Selects one of a library's algorithms when a plan is made, on the backend's stream. Used on the
// backend's thread.

// Returns the index of one of `count` candidates, which are in the library's order, best first, or
// -1 if none runs. Without Shared::measure it is the first that runs: time has no part in it, so
// another process on such a GPU with such libraries chooses the same. With it, it is the fastest; a
// later one must be 3 % faster, so that noise rarely decides.
//   run: enqueues candidate i; returns false if the library rejects it.
// Throws Error(kDevice) if the device fails.
int choose(Shared& shared, int count, const std::function<bool(int)>& run);

// Returns the value that the job, or an earlier plan of this backend, chose for `key`, or null.
const std::string* chosen(const Shared& shared, const std::string& key);

// Throws Error(kProtocol), which says that this program cannot use `value` for `key`, and why.
[[noreturn]] void refuse_choice(const Shared& shared, const std::string& key,
                                const std::string& value, const std::string& why);

}  // namespace pushpull::ops::cuda
