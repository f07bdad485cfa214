// The runtime's functions for memory of the device and the host, and for copies.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tests/cuda_on_host/runtime.h"

namespace cuda_on_host {

namespace {

constexpr uintptr_t kPage = 4096;

// Returns whether every page of the range is writable.
bool is_writable(uintptr_t first, uintptr_t last) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::string rights;
    words >> std::hex >> begin >> dash >> end >> rights;
    if (first < begin || first >= end) continue;
    if (rights[0] != 'r' || rights[1] != 'w') return false;
    if (last <= end) return true;
    first = end;
  }
  return false;
}

}  // namespace

cudaError_t HostPages::add(void* first, size_t bytes, unsigned flags) {
  constexpr unsigned kKnown = cudaHostRegisterPortable | cudaHostRegisterMapped |
                              cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
  if (first == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  if ((flags & cudaHostRegisterIoMemory) != 0) return cudaErrorNotSupported;
  const auto begin = reinterpret_cast<uintptr_t>(first);
  const uintptr_t page = begin / kPage * kPage;
  const uintptr_t last_page = (begin + bytes + kPage - 1) / kPage * kPage;
  for (const auto& [other, range] : all_) {
    if (page < range.last_page && other / kPage * kPage < last_page) {
      return cudaErrorHostMemoryAlreadyRegistered;
    }
  }
  // pages are pinned for writing unless the caller says that the device only reads them
  if ((flags & cudaHostRegisterReadOnly) == 0 && !is_writable(page, last_page)) {
    return cudaErrorInvalidValue;
  }
  all_[begin] = {begin + bytes, last_page, flags};
  return cudaSuccess;
}

cudaError_t HostPages::remove(void* first) {
  return all_.erase(reinterpret_cast<uintptr_t>(first)) == 0 ? cudaErrorHostMemoryNotRegistered
                                                             : cudaSuccess;
}

HostPages::Kind HostPages::kind(const void* first, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(first);
  for (const auto& [at, range] : all_) {
    if (begin >= range.last || begin + bytes <= at) continue;
    if (begin < at || begin + bytes > range.last) return Kind::kPartly;
    return (range.flags & cudaHostRegisterReadOnly) != 0 ? Kind::kReadOnly : Kind::kRegistered;
  }
  return Kind::kPageable;
}

namespace {

enum class Side { kDevice, kHost, kPageable, kBad };

Side side_of(const Runtime& all, const void* first, size_t bytes, bool is_written) {
  if (all.arena.find(first, bytes) != nullptr) return Side::kDevice;
  if (all.arena.find(first, 1) != nullptr) return Side::kBad;  // beyond its end
  switch (all.host.kind(first, bytes)) {
    case HostPages::Kind::kPageable:
      return Side::kPageable;
    case HostPages::Kind::kRegistered:
      return Side::kHost;
    case HostPages::Kind::kReadOnly:
      return is_written ? Side::kBad : Side::kHost;
    case HostPages::Kind::kPartly:
      break;
  }
  return Side::kBad;
}

bool fits(cudaMemcpyKind kind, bool from_device, bool to_device) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !from_device && !to_device;
    case cudaMemcpyHostToDevice:
      return !from_device && to_device;
    case cudaMemcpyDeviceToHost:
      return from_device && !to_device;
    case cudaMemcpyDeviceToDevice:
      return from_device && to_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

bool overlap(const void* a, const void* b, size_t bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a);
  const auto y = reinterpret_cast<uintptr_t>(b);
  return x < y + bytes && y < x + bytes;
}

// Makes the node of a copy or memset, which checks at its run that the memory still exists.
Node touching(Runtime& all, const void* first, size_t bytes, std::function<void()> work) {
  const bool on_device = all.arena.find(first, bytes) != nullptr;
  return [&all, first, bytes, on_device, work = std::move(work)] {
    return Step{nullptr, [=, &all] {
                  if (on_device && all.arena.find(first, bytes) == nullptr) {
                    all.fail(cudaErrorIllegalAddress, "a copy of memory that was freed");
                    return;
                  }
                  all.run_work("a copy", work);
                }};
  };
}

cudaError_t copy(Runtime& all, void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t handle) {
  const cudaStream_t stream = all.streams.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (all.streams.is_legacy(stream) && all.streams.forbids_legacy()) {
    return cudaErrorStreamCaptureImplicit;
  }
  if (bytes == 0) return cudaSuccess;
  const Side source = side_of(all, from, bytes, false);
  const Side target = side_of(all, to, bytes, true);
  if (source == Side::kBad || target == Side::kBad ||
      !fits(kind, source == Side::kDevice, target == Side::kDevice) || overlap(to, from, bytes)) {
    return cudaErrorInvalidValue;
  }
  const bool is_pageable = source == Side::kPageable || target == Side::kPageable;
  // each launch would access pageable memory, which the caller may have freed by then
  if (stream->capture && is_pageable) {
    stream->capture->is_broken = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  const void* const on_device = source == Side::kDevice ? from : to;
  all.streams.push(
      stream, touching(all, on_device, bytes, [to, from, bytes] { std::memcpy(to, from, bytes); }));
  // pageable memory is written when the call returns; its time of reading is not specified
  // (cudaDevAttrPageableMemoryAccess), so it is read late
  if (target == Side::kPageable) {
    all.streams.run_until([&] { return stream->steps.empty(); }, "a copy to pageable memory");
  }
  return cudaSuccess;
}

cudaError_t set(Runtime& all, void* first, int value, size_t bytes, cudaStream_t handle) {
  const cudaStream_t stream = all.streams.find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (all.streams.is_legacy(stream) && all.streams.forbids_legacy()) {
    return cudaErrorStreamCaptureImplicit;
  }
  if (bytes == 0) return cudaSuccess;
  if (all.arena.find(first, bytes) == nullptr) return cudaErrorInvalidValue;
  all.streams.push(stream, touching(all, first, bytes, [&all, first, value, bytes] {
                     all.arena.set(first, value, bytes);
                   }));
  return cudaSuccess;
}

}  // namespace
}  // namespace cuda_on_host

using namespace cuda_on_host;  // NOLINT(google-build-using-namespace)

extern "C" {

cudaError_t cudaMalloc(void** first, size_t bytes) {
  return call([&](Runtime& all) {
    if (first == nullptr) return cudaErrorInvalidValue;
    if (all.streams.forbids_unsafe()) return cudaErrorStreamCaptureUnsupported;
    *first = nullptr;
    if (bytes == 0) return cudaSuccess;
    *first = all.arena.allocate(bytes);
    return *first == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

// Waits until the device is idle.
cudaError_t cudaFree(void* first) {
  return call([&](Runtime& all) {
    if (all.streams.forbids_unsafe()) return cudaErrorStreamCaptureUnsupported;
    if (first == nullptr) return cudaSuccess;
    all.streams.run_all();
    return all.broken == cudaSuccess ? all.arena.free(first) : all.broken;
  });
}

cudaError_t cudaMallocHost(void** first, size_t bytes) {
  return call([&](Runtime& all) {
    if (all.streams.forbids_unsafe()) return cudaErrorStreamCaptureUnsupported;
    *first = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    return *first == nullptr ? cudaErrorMemoryAllocation
                             : all.host.add(*first, bytes, cudaHostRegisterPortable);
  });
}
cudaError_t cudaFreeHost(void* first) {
  return call([&](Runtime& all) {
    all.streams.run_all();
    const cudaError_t status = all.host.remove(first);
    if (status == cudaSuccess) std::free(first);
    return status;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&](Runtime& all) {
    *total = Arena::kTotal;
    *free = Arena::kTotal - all.arena.used();
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&](Runtime& all) { return copy(all, to, from, bytes, kind, stream); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call([&](Runtime& all) {
    if (all.streams.forbids_unsafe()) return cudaErrorStreamCaptureUnsupported;
    const cudaError_t status = copy(all, to, from, bytes, kind, cudaStreamLegacy);
    const cudaStream_t legacy = all.streams.find(cudaStreamLegacy);
    all.streams.run_until([&] { return legacy->steps.empty(); }, "cudaMemcpy");
    return status;
  });
}
cudaError_t cudaMemsetAsync(void* first, int value, size_t bytes, cudaStream_t stream) {
  return call([&](Runtime& all) { return set(all, first, value, bytes, stream); });
}
// Returns before the memset has run, like the real one on device memory.
cudaError_t cudaMemset(void* first, int value, size_t bytes) {
  return call([&](Runtime& all) {
    if (all.streams.forbids_unsafe()) return cudaErrorStreamCaptureUnsupported;
    return set(all, first, value, bytes, cudaStreamLegacy);
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return call([&](Runtime& all) {
    *attributes = {};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;  // cudaInvalidDeviceId
    if (all.arena.find(pointer, 1) != nullptr) {
      attributes->type = cudaMemoryTypeDevice;
      attributes->device = 0;
      attributes->devicePointer = const_cast<void*>(pointer);
    } else if (all.host.kind(pointer, 1) != HostPages::Kind::kPageable) {
      attributes->type = cudaMemoryTypeHost;
      attributes->device = 0;
      attributes->devicePointer = attributes->hostPointer = const_cast<void*>(pointer);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* first, size_t bytes, unsigned flags) {
  return call([&](Runtime& all) {
    if (all.streams.forbids_unsafe()) return cudaErrorStreamCaptureUnsupported;
    return all.host.add(first, bytes, flags);
  });
}
cudaError_t cudaHostUnregister(void* first) {
  return call([&](Runtime& all) {
    if (all.streams.forbids_unsafe()) return cudaErrorStreamCaptureUnsupported;
    return all.host.remove(first);
  });
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* first) {
  return call([&](Runtime& all) { return all.arena.share(first, *handle); });
}
cudaError_t cudaIpcOpenMemHandle(void** first, cudaIpcMemHandle_t handle, unsigned flags) {
  return call([&](Runtime& all) {
    if (flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
    if (all.streams.forbids_unsafe()) return cudaErrorStreamCaptureUnsupported;
    return all.arena.open(handle, *first);
  });
}
cudaError_t cudaIpcCloseMemHandle(void* first) {
  return call([&](Runtime& all) {
    all.streams.run_all();
    return all.arena.close(first);
  });
}

}  // extern "C"
