// The device, errors, kernel launches, and the signals of invalid accesses.
#include "tests/cuda_on_host/runtime.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/cuda_on_host/block.h"

namespace cuda_on_host {

// declared in device_language.h, which is for kernels
void enqueue(Launch launch, cudaStream_t stream);

namespace {

uint64_t seed_of_environment() {
  const char* text = std::getenv("CUDA_ON_HOST_SEED");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

// A first access to memory opens it. Any other fault is reported, and then ends the process as
// usual.
void on_signal(int signal, siginfo_t* info, void* /*context*/) {
  Runtime& all = runtime();
  if (signal == SIGSEGV && all.is_running && all.arena.open_at(info->si_addr)) return;
  char text[512];
  const char* const kernel = running_now();
  const std::string about = signal == SIGILL ? "is not aligned for it, or is behind an array's end"
                                             : all.arena.about(info->si_addr);
  const int length = std::snprintf(
      text, sizeof text, "cuda_on_host: %s touches %p, which %s\n",
      all.is_running ? (kernel[0] == '\0' ? "a copy, or a library," : kernel) : "the host",
      info->si_addr, about.c_str());
  if (write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) _exit(1);
  ::signal(signal, SIG_DFL);
}

bool is_launchable(const Launch& launch) {
  const dim3& grid = launch.grid;
  const dim3& block = launch.block;
  return grid.x > 0 && grid.x <= 0x7fffffffU && grid.y > 0 && grid.y <= 0xffffU && grid.z > 0 &&
         grid.z <= 0xffffU && block.x > 0 && block.x <= kMaxThreads && block.y > 0 &&
         block.y <= kMaxThreads && block.z > 0 && block.z <= 64 &&
         uint64_t{block.x} * block.y * block.z <= kMaxThreads;
}

}  // namespace

Runtime::Runtime() : streams(seed_of_environment()) {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO;
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL}) sigaction(signal, &action, nullptr);
  // libraries allocate megabytes for each product: fresh pages would cost more than the product
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT32_MAX);
}

void Runtime::fail(cudaError_t status, const std::string& why) {
  std::fprintf(stderr, "cuda_on_host: %s\n", why.c_str());
  fault = why;
  broken = status;
  streams.drop_all();
}

// Never destroyed: static objects may be destroyed after it.
Runtime& runtime() {
  static auto* const all = new Runtime;
  return *all;
}

cudaError_t& latest_error() {
  thread_local cudaError_t latest = cudaSuccess;
  return latest;
}

void restart(uint64_t seed) {
  Runtime& all = runtime();
  const std::lock_guard lock(all.mutex);
  all.streams.restart(seed);
  all.broken = cudaSuccess;
  all.fault.clear();
  latest_error() = cudaSuccess;
}

std::string latest_fault() {
  const std::lock_guard lock(runtime().mutex);
  return runtime().fault;
}

void enqueue(Launch launch, cudaStream_t handle) {
  static_cast<void>(call([&](Runtime& all) {
    const cudaStream_t stream = all.streams.find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (all.streams.is_legacy(stream) && all.streams.forbids_legacy()) {
      return cudaErrorStreamCaptureImplicit;
    }
    if (!is_launchable(launch)) return cudaErrorInvalidConfiguration;
    if (launch.shared_bytes > kMaxSharedBytes) return cudaErrorInvalidValue;
    const auto kept = std::make_shared<const Launch>(std::move(launch));
    all.streams.push(stream, [&all, kept] {
      return Step{nullptr, [&all, kept] {
                    std::string fault;
                    all.run_work(text_of(kept->place),
                                 [&] { fault = run(*kept, all.streams.order().next()); });
                    if (!fault.empty()) all.fail(cudaErrorLaunchFailure, fault);
                  }};
    });
    return cudaSuccess;
  }));
}

}  // namespace cuda_on_host

using cuda_on_host::call;
using cuda_on_host::latest_error;
using cuda_on_host::runtime;
using cuda_on_host::Runtime;
using cuda_on_host::Step;

// Called by the stand-ins of libraries to put work on a stream. Returns 0 if it will run, else an
// error.
extern "C" __attribute__((visibility("default"))) int cuda_on_host_enqueue(cudaStream_t handle,
                                                                           void (*work)(void*),
                                                                           void* argument,
                                                                           void (*destroy)(void*)) {
  const std::shared_ptr<void> kept(argument, destroy == nullptr ? [](void*) {} : destroy);
  return call([&](Runtime& all) {
    const cudaStream_t stream = all.streams.find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (all.streams.is_legacy(stream) && all.streams.forbids_legacy()) {
      return cudaErrorStreamCaptureImplicit;
    }
    all.streams.push(stream, [&all, kept, work] {
      return Step{nullptr, [&all, kept, work] {
                    all.run_work("work of a library", [&] { work(kept.get()); });
                  }};
    });
    return cudaSuccess;
  });
}

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t broken = runtime().broken;
  const cudaError_t latest = latest_error();
  latest_error() = cudaSuccess;
  return broken == cudaSuccess ? latest : broken;
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t broken = runtime().broken;
  return broken == cudaSuccess ? latest_error() : broken;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorDeviceUninitialized:
      return "invalid device context";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "part or all of the requested memory range is already mapped";
    case cudaErrorHostMemoryNotRegistered:
      return "pointer does not correspond to a registered memory region";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorNotSupported:
      return "operation not supported";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnmatched:
      return "capture was not initiated in this stream";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
    default:
      return "unrecognized error code";
  }
}

cudaError_t cudaSetDevice(int device) {
  return call([&](Runtime&) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&](Runtime&) {
    if (device != 0) return cudaErrorInvalidDevice;
    *properties = {};
    std::strcpy(properties->name, "CUDA on the host");
    // all processes of a machine see the same device
    std::memcpy(properties->uuid.bytes, "cuda on the host", sizeof properties->uuid.bytes);
    properties->major = 9;
    properties->minor = 0;
    properties->totalGlobalMem = cuda_on_host::Arena::kTotal;
    properties->sharedMemPerBlock = cuda_on_host::kMaxSharedBytes;
    properties->warpSize = cuda_on_host::kWarpThreads;
    properties->maxThreadsPerBlock = cuda_on_host::kMaxThreads;
    properties->multiProcessorCount = 132;
    properties->regsPerBlock = 65536;
    properties->hostRegisterReadOnlySupported = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call([&](Runtime&) {
    if (device != 0) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
      case cudaDevAttrHostRegisterReadOnlySupported:
        *value = 1;
        return cudaSuccess;
      default:
        std::fprintf(stderr, "cuda_on_host: attribute %d is not known here\n", attribute);
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return call([&](Runtime&) {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->maxThreadsPerBlock = cuda_on_host::kMaxThreads;
    attributes->binaryVersion = 90;
    attributes->ptxVersion = 90;
    return cudaSuccess;
  });
}

}  // extern "C"
