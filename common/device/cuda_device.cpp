// Device, Stream, Event and Graph on CUDA's runtime.
#include <cuda_runtime_api.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/device/cuda_check.h"
#include "common/device/cuda_kernels.h"
#include "common/device/device.h"
#include "common/device/registered_pages.h"

namespace pushpull::device {

namespace {

// Polls `query` until it reports completion, since CUDA's own waits have no deadline. Most waits
// end within microseconds; a longer one sleeps between polls.
template <class Query>
void poll(int index, int64_t deadline_ms, Query query) {
  constexpr double kBusySeconds = 200e-6;
  constexpr auto kPause = std::chrono::microseconds(20);
  const double begin = now_seconds();
  for (;;) {
    const cudaError_t status = query();
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) check(status, "earlier enqueued work");
    const double waited = now_seconds() - begin;
    if (waited * 1e3 > static_cast<double>(deadline_ms)) {
      throw Error(ErrorCode::kDevice,
                  "[device] " + device_text(index) + " has not finished its work within " +
                      std::to_string(deadline_ms) +
                      " ms; nvidia-smi shows whether it hangs or is busy with other programs");
    }
    if (waited < kBusySeconds) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

// Maps addresses to their device: Memory::Free gets only an address, and the freeing thread may
// never have used this device.
class Blocks {
 public:
  void add(void* first, int index) {
    const std::lock_guard lock(mutex_);
    device_of_[first] = index;
  }
  int take(void* first) {
    const std::lock_guard lock(mutex_);
    return device_of_.extract(first).mapped();
  }

 private:
  std::mutex mutex_;
  std::map<void*, int> device_of_;
};

// Never destroyed, since static objects may free memory later.
Blocks& blocks() {
  static auto* const all = new Blocks;
  return *all;
}
RegisteredPages& pages() {
  static auto* const all = new RegisteredPages;
  return *all;
}

void end_of(const char* what, cudaError_t status) {
  if (status == cudaSuccess || status == cudaErrorCudartUnloading) return;
  cudaGetLastError();
  log_failed_end(what, status, cudaGetErrorString(status));
}

void free_memory(void* first) {
  const cudaError_t status = cudaSetDevice(blocks().take(first));
  end_of("device memory", status == cudaSuccess ? cudaFree(first) : status);
}

class EventOfCuda : public Event {
 public:
  EventOfCuda(int index, bool is_timed) : index_(index), is_timed_(is_timed) {
    use_device(index_);
    PP_CUDA(cudaEventCreateWithFlags(event_.put(),
                                     is_timed ? cudaEventDefault : cudaEventDisableTiming));
  }

  bool done() override {
    use_device(index_);
    const cudaError_t status = cudaEventQuery(event_.get());
    if (status == cudaErrorNotReady) return false;
    check(status, "earlier enqueued work");
    return true;
  }

  void wait(int64_t deadline_ms) override {
    use_device(index_);
    poll(index_, deadline_ms, [this] { return cudaEventQuery(event_.get()); });
  }

  double seconds_since(const Event& earlier) const override {
    const auto& begin = static_cast<const EventOfCuda&>(earlier);
    PP_ASSERT(is_timed_ && begin.is_timed_);
    use_device(index_);
    float milliseconds = 0.0F;
    PP_CUDA(cudaEventElapsedTime(&milliseconds, begin.event_.get(), event_.get()));
    return static_cast<double>(milliseconds) * 1e-3;
  }

  cudaEvent_t get() const { return event_.get(); }

 private:
  int index_;
  bool is_timed_;
  CudaEvent event_;
};

struct GraphOfCuda : Graph {
  CudaGraphExec exec;
};

class StreamOfCuda : public Stream {
 public:
  explicit StreamOfCuda(int index) : index_(index) {
    use_device(index_);
    // does not wait for the default stream, which is unused
    PP_CUDA(cudaStreamCreateWithFlags(stream_.put(), cudaStreamNonBlocking));
  }

  void copy_in(const void* host, size_t bytes, void* to) override {
    if (on_device(host)) {
      use_device(index_);
      PP_CUDA(cudaMemcpyAsync(to, host, bytes, cudaMemcpyDeviceToDevice, get()));
      return;
    }
    copy_host(host, bytes, to, cudaMemcpyHostToDevice,
              pages().hold(host, bytes, Access::kReadOnly));
  }
  void copy_out(const void* from, size_t bytes, void* host) override {
    copy_host(from, bytes, host, cudaMemcpyDeviceToHost,
              pages().hold(host, bytes, Access::kReadWrite));
  }

  void add(const float* left, float* right, size_t n) override {
    use_device(index_);
    launch_add(left, right, n, get());
  }

  void find_non_finite(const float* x, size_t n, size_t slice, int64_t mark,
                       int64_t* marks) override {
    use_device(index_);
    launch_find_non_finite(x, n, slice, mark, marks, get());
  }

  void update(const SliceBatch& batch) override {
    use_device(index_);
    launch_update(batch, get());
  }

  void square(const SliceBatch& batch, float divisor, double* squares) override {
    use_device(index_);
    launch_square(batch, divisor, squares, get());
  }

  void measure(const SliceBatch& batch, double* squares) override {
    use_device(index_);
    launch_measure(batch, squares, get());
  }

  // "External": other streams wait for the event of the graph itself, not for a node inside the
  // graph.
  void record(Event& event) override {
    use_device(index_);
    PP_CUDA(
        cudaEventRecordWithFlags(static_cast<EventOfCuda&>(event).get(), get(),
                                 is_capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault));
  }

  void wait(const Event& event) override {
    use_device(index_);
    PP_CUDA(cudaStreamWaitEvent(get(), static_cast<const EventOfCuda&>(event).get(),
                                is_capturing_ ? cudaEventWaitExternal : cudaEventWaitDefault));
  }

  std::unique_ptr<Graph> capture(const std::function<void()>& enqueue) override {
    PP_ASSERT(!is_capturing_);
    use_device(index_);
    // keeps other threads' CUDA calls out of the graph
    PP_CUDA(cudaStreamBeginCapture(get(), cudaStreamCaptureModeThreadLocal));
    is_capturing_ = true;
    CudaGraph recorded;
    try {
      enqueue();
    } catch (...) {
      // an error of a call that cannot be captured, and of every call after it
      if (end_capture(recorded) == cudaErrorStreamCaptureInvalidated) return nullptr;
      throw;
    }
    if (end_capture(recorded) != cudaSuccess) return nullptr;
    auto graph = std::make_unique<GraphOfCuda>();
    if (cudaGraphInstantiate(graph->exec.put(), recorded.get(), 0) != cudaSuccess) {
      cudaGetLastError();
      return nullptr;
    }
    return graph;
  }

  void launch(Graph& graph) override {
    PP_ASSERT(!is_capturing_);
    use_device(index_);
    PP_CUDA(cudaGraphLaunch(static_cast<GraphOfCuda&>(graph).exec.get(), get()));
  }

  void synchronize(int64_t deadline_ms) override {
    use_device(index_);
    poll(index_, deadline_ms, [this] { return cudaStreamQuery(get()); });
  }

  cudaStream_t get() const { return stream_.get(); }

 private:
  bool on_device(const void* address) const {
    use_device(index_);
    cudaPointerAttributes attributes{};
    PP_CUDA(cudaPointerGetAttributes(&attributes, address));
    return attributes.type == cudaMemoryTypeDevice;
  }

  // Waits for the copy of pageable memory: CUDA does not promise to have read it when the call
  // returns (it may read it in place, see cudaDevAttrPageableMemoryAccess).
  void copy_host(const void* from, size_t bytes, void* to, cudaMemcpyKind kind,
                 bool is_registered) {
    constexpr int64_t kDeadlineMs = 60'000;
    PP_ASSERT(is_registered || !is_capturing_);
    use_device(index_);
    PP_CUDA(cudaMemcpyAsync(to, from, bytes, kind, get()));
    if (!is_registered) synchronize(kDeadlineMs);
  }

  cudaError_t end_capture(CudaGraph& recorded) {
    is_capturing_ = false;
    const cudaError_t status = cudaStreamEndCapture(get(), recorded.put());
    if (status != cudaSuccess) cudaGetLastError();
    return status;
  }

  int index_;
  bool is_capturing_ = false;
  CudaStream stream_;
};

class DeviceOfCuda : public Device {
 public:
  explicit DeviceOfCuda(int index) : index_(index), name_(device_text(index)) {}

  std::string name() const override { return name_; }
  int index() const { return index_; }

  Memory allocate(size_t bytes) override {
    use_device(index_);
    void* first = nullptr;
    const size_t size = bytes == 0 ? 1 : bytes;
    const cudaError_t status = cudaMalloc(&first, size);
    if (status == cudaErrorMemoryAllocation) no_room(bytes);
    check(status, "cudaMalloc");
    blocks().add(first, index_);
    Memory memory(first, bytes, free_memory);
    // our streams do not wait for the default stream, so wait here
    PP_CUDA(cudaMemset(first, 0, size));
    PP_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    return memory;
  }

  std::string id() const override {
    cudaDeviceProp properties{};
    PP_CUDA(cudaGetDeviceProperties(&properties, index_));
    return {properties.uuid.bytes, sizeof properties.uuid.bytes};
  }

  // Rounds up: CUDA serves small allocations from a shared block, and the handle would expose all
  // of it.
  Memory allocate_shared(size_t bytes, std::string& handle) override {
    constexpr size_t kWhole = size_t{2} << 20;
    Memory memory = allocate((bytes + kWhole - 1) / kWhole * kWhole);
    cudaIpcMemHandle_t native{};
    PP_CUDA(cudaIpcGetMemHandle(&native, memory.data()));
    handle.assign(native.reserved, sizeof native.reserved);
    return memory;
  }

  std::shared_ptr<const void> open_shared(const std::string& handle, size_t bytes) override {
    cudaIpcMemHandle_t native{};
    if (handle.size() != sizeof native.reserved) {
      throw Error(ErrorCode::kProtocol, "[device] a handle of " + std::to_string(handle.size()) +
                                            " bytes, not " +
                                            std::to_string(sizeof native.reserved));
    }
    handle.copy(native.reserved, sizeof native.reserved);
    use_device(index_);
    void* first = nullptr;
    const cudaError_t status = cudaIpcOpenMemHandle(&first, native, cudaIpcMemLazyEnablePeerAccess);
    if (status != cudaSuccess) {
      cudaGetLastError();
      throw Error(ErrorCode::kProtocol,
                  "[device] " + name_ + " cannot open " + std::to_string(bytes) +
                      " bytes of another process: " + cudaGetErrorString(status));
    }
    return {first, [index = index_](void* opened) {
              const cudaError_t set = cudaSetDevice(index);
              end_of("memory of another process",
                     set == cudaSuccess ? cudaIpcCloseMemHandle(opened) : set);
            }};
  }

  std::unique_ptr<Stream> stream() override { return std::make_unique<StreamOfCuda>(index_); }

  std::unique_ptr<Event> event(bool timed) override {
    return std::make_unique<EventOfCuda>(index_, timed);
  }

  std::shared_ptr<void> register_pages(std::byte* first, size_t bytes, Access access,
                                       std::string& why) override {
    use_device(index_);
    unsigned flags = cudaHostRegisterPortable;
    if (access == Access::kReadOnly) {
      int can = 0;
      PP_CUDA(cudaDeviceGetAttribute(&can, cudaDevAttrHostRegisterReadOnlySupported, index_));
      if (can == 0) {
        why = name_ + " cannot register memory that this process may only read";
        return nullptr;
      }
      flags |= cudaHostRegisterReadOnly;
    }
    const cudaError_t status = cudaHostRegister(first, bytes, flags);
    if (status != cudaSuccess) {
      cudaGetLastError();
      why = name_ + " did not register " + std::to_string(bytes) +
            " bytes of host memory: " + cudaGetErrorString(status);
      return nullptr;
    }
    pages().add(first, bytes, access);
    return {first, [index = index_](std::byte* begin) {
              pages().remove(begin);
              // cudaHostUnregister on a thread without a device would create a context on device 0
              const cudaError_t set = cudaSetDevice(index);
              end_of("registered host memory",
                     set == cudaSuccess ? cudaHostUnregister(begin) : set);
            }};
  }

 private:
  [[noreturn]] void no_room(size_t bytes) const {
    cudaGetLastError();
    size_t free = 0;
    size_t total = 0;
    PP_CUDA(cudaMemGetInfo(&free, &total));
    throw Error(ErrorCode::kDevice,
                "[device] " + name_ + " has no room for " + std::to_string(bytes) +
                    " more bytes: " + std::to_string(free) + " of " + std::to_string(total) +
                    " are free; fewer programs on it or a smaller micro-batch need less");
  }

  int index_;
  std::string name_;
};

}  // namespace

cudaStream_t native_stream(const Stream& stream) {
  return static_cast<const StreamOfCuda&>(stream).get();
}

int native_index(const Device& device) { return static_cast<const DeviceOfCuda&>(device).index(); }

std::shared_ptr<Device> make_cuda_device(int index) {
  return std::make_shared<DeviceOfCuda>(index);
}

}  // namespace pushpull::device
