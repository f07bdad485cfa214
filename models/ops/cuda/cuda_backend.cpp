// The CUDA backend: one device, one compute stream, and the scratch memory of its operations.
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/base/error.h"
#include "common/device/cuda_check.h"
#include "common/device/cuda_libraries.h"
#include "models/ops/cuda/convolution.h"
#include "models/ops/cuda/makers.h"
#include "models/ops/device_numerics.h"

namespace pushpull::ops {

namespace cuda {

void Shared::need_scratch(size_t bytes) {
  if (bytes > scratch.size()) scratch = device->allocate(bytes);
}

Buffer Shared::buffer(size_t floats) { return Buffer(device->allocate(floats * sizeof(float))); }

}  // namespace cuda

namespace {

// One table per room.
constexpr std::array kTables{
    cuda::Makers(cuda::kHeadMakers),      cuda::Makers(cuda::kImageMakers),
    cuda::Makers(cuda::kPointwiseMakers), cuda::Makers(cuda::kProductMakers),
    cuda::Makers(cuda::kSequenceMakers),
};

constexpr int64_t kDeadlineMs = 60'000;  // for the work enqueued for one micro-batch

// Returns true if the driver compiles our kernels from PTX.
bool is_compiled_by_driver(const cudaDeviceProp& properties) {
  const char* forced = std::getenv("CUDA_FORCE_PTX_JIT");  // the driver reads it
  return (forced != nullptr && std::string_view(forced) != "0") ||
         !has_machine_code(device::architectures(), properties.major, properties.minor);
}

// Libraries read these variables; with them, workers of one job would compute different bits.
void refuse_overrides() {
  for (const char* name : {"NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    throw Error(ErrorCode::kUsage, std::string("[models] ") + name + "=" + value +
                                       " is set, which changes what libraries compute; unset it "
                                       "and say precision = tf32 or fp32 in the job");
  }
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const BackendOptions& options) {
    refuse_overrides();
    shared_.device = device::open(options.device);
    shared_.index = options.device.index;
    shared_.precision = options.precision;
    shared_.loss_scale = options.loss_scale;
    shared_.measure = options.measure;
    const Scope scope(*this);
    stream_ = shared_.device->stream();
    shared_.stream = device::native_stream(*stream_);
    device::check(device::cublas_lt().cublasLtCreate(&shared_.lt), "cublasLtCreate");
  }
  ~CudaBackend() override {
    if (shared_.lt == nullptr) return;
    const cublasStatus_t status = device::cublas_lt().cublasLtDestroy(shared_.lt);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    device::log_failed_end("cuBLASLt", status, device::cublas_lt().cublasLtGetStatusString(status));
  }
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  Buffer allocate(size_t floats) override { return shared_.buffer(floats); }

  // Plain NCHW in either layout: allows any number of channels, and 16-byte loads along rows.
  size_t image_floats(const ImageShape& shape, Layout /*layout*/) const override {
    return static_cast<size_t>(shape.size());
  }

  void write(const void* host, size_t bytes, void* to) override {
    stream_->copy_in(host, bytes, to);
    stream_->synchronize(kDeadlineMs);
  }
  void read(const void* from, size_t bytes, void* host) override {
    stream_->copy_out(from, bytes, host);
    stream_->synchronize(kDeadlineMs);
  }

  std::shared_ptr<device::Device> device() const override { return shared_.device; }
  device::Stream& stream() override { return *stream_; }

  std::string numerics() const override {
    cudaDeviceProp properties{};
    PP_CUDA(cudaGetDeviceProperties(&properties, shared_.index));
    int runtime = 0;
    PP_CUDA(cudaRuntimeGetVersion(&runtime));
    int ptx_driver = 0;
    if (is_compiled_by_driver(properties)) PP_CUDA(cudaDriverGetVersion(&ptx_driver));
    const size_t lt = device::cublas_lt().cublasLtGetVersion();
    return to_string(DeviceNumerics{.device = properties.name,
                                    .major = properties.major,
                                    .minor = properties.minor,
                                    .ptx_driver = ptx_driver,
                                    .runtime = runtime,
                                    .cublas_lt = lt,
                                    .cudnn = cuda::cudnn_version(shared_),
                                    .precision = shared_.precision,
                                    .loss_scale = shared_.loss_scale});
  }
  std::string choices() const override { return shared_.made.text(); }
  void choose(const std::string& choices) override {
    shared_.given = Choices::parse(choices);
    shared_.made = {};
  }

  std::unique_ptr<Operation> plan(const Spec& spec) override {
    for (const cuda::Makers table : kTables) {
      for (const auto& [name, make] : table) {
        if (name != spec.name()) continue;
        const Scope scope(*this);
        return make(shared_, spec);
      }
    }
    return this->Backend::plan(spec);
  }

 private:
  // Inside a Scope the device is the calling thread's; it is not restored (use_device explains
  // why).
  int enter() override {
    device::use_device(shared_.index);
    return 0;
  }
  void leave(int /*saved*/) override {}

  cuda::Shared shared_;
  std::unique_ptr<device::Stream> stream_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace pushpull::ops
