// A compute device other than the processor: its memory, and streams on which copies and kernels
// run in order. Implemented by CUDA (cuda/) and by test fakes; a build without CUDA has none
// (no_cuda.cpp). Use a Device and the objects that it made from one thread at a time; Memory and
// registrations may be destroyed on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/base/buffer_pool.h"
#include "common/device/device_name.h"

namespace pushpull::device {

struct SliceBatch;

// A point in a stream's order, set by the latest `record`.
class Event {
 public:
  virtual ~Event() = default;
  // Returns true if all work before that point has finished, or if the event was never recorded.
  // Throws Error(kDevice) if the device has failed.
  virtual bool done() = 0;
  // Blocks the host until `done`. Throws Error(kDevice) naming the device if it has failed or the
  // work takes longer than deadline_ms.
  virtual void wait(int64_t deadline_ms) = 0;
  // Returns the seconds between two timed events, both done.
  virtual double seconds_since(const Event& earlier) const = 0;
};

// Recorded work that is launched as a whole. The events and memory that it uses must outlive it.
class Graph {
 public:
  virtual ~Graph() = default;
};

// Runs enqueued work in order. Only events order work between streams. Calls return before the work
// is done, except `synchronize` and copies of unregistered host memory. All throw Error(kDevice).
class Stream {
 public:
  virtual ~Stream() = default;
  // Copies to and from device memory. Registered host memory is accessed when the copy runs and
  // must stay valid until then; with any other host memory the call returns after the access.
  // copy_in also accepts device memory (of this device, or from `open_shared`), which counts as
  // registered.
  virtual void copy_in(const void* host, size_t bytes, void* to) = 0;
  virtual void copy_out(const void* from, size_t bytes, void* host) = 0;
  // right = left + right, element by element, with the same bits as on the host.
  virtual void add(const float* left, float* right, size_t n) = 0;
  // Sets marks[i], in device memory, to `mark` if slice i of x contains NaN or infinity; other
  // marks keep their values. Each slice has `slice` > 0 elements, the last one may have fewer.
  virtual void find_non_finite(const float* x, size_t n, size_t slice, int64_t mark,
                               int64_t* marks) = 0;
  // Updates the tiles of `batch`. All pointers in the struct must point to device memory.
  virtual void update(const SliceBatch& batch) = 0;
  // Sets squares[t], in device memory, to the sum of squares of tile t's mean gradient (its
  // gradient sum / divisor). A tile has at most kNormBlock elements.
  virtual void square(const SliceBatch& batch, float divisor, double* squares) = 0;
  // Sets squares[2 t] and squares[2 t + 1], in device memory, to the sums of squares of tile t's
  // weights and of its directions under lamb. A tile has at most kNormBlock elements.
  virtual void measure(const SliceBatch& batch, double* squares) = 0;
  // Makes `event` done once all work enqueued here so far is done.
  virtual void record(Event& event) = 0;
  // Makes work enqueued from now on wait for the latest record of `event`, if there is one.
  virtual void wait(const Event& event) = 0;
  // Calls `enqueue` and records the work that it enqueues instead of running it. `enqueue` may use
  // only this stream and registered host memory. Its `record` and `wait` calls take effect at each
  // launch. Returns null if the device cannot capture the work; nothing is kept, and the caller
  // makes the same calls without capturing. Rethrows exceptions of `enqueue`.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& enqueue) = 0;
  virtual void launch(Graph& graph) = 0;
  // Blocks the host until all work enqueued here is done. Throws as Event::wait does.
  virtual void synchronize(int64_t deadline_ms) = 0;
};

// Owns device memory: zeroed at allocation, aligned to 256 bytes. Its destructor may wait for all
// work on the device.
class Memory {
 public:
  using Free = void (*)(void*);
  Memory() : bytes_(nullptr, nullptr) {}
  Memory(void* first, size_t size, Free free) : bytes_(first, free), size_(size) {}
  void* data() const { return bytes_.get(); }
  float* floats() const { return static_cast<float*>(bytes_.get()); }
  size_t size() const { return size_; }
  // Gives up ownership: returns the address and the function that frees it.
  std::pair<void*, Free> release() {
    size_ = 0;
    const Free free = bytes_.get_deleter();
    return {bytes_.release(), free};
  }

 private:
  std::unique_ptr<void, Free> bytes_;
  size_t size_ = 0;
};

// How the device may access host memory.
enum class Access { kReadWrite, kReadOnly };

class Device {
 public:
  virtual ~Device() = default;
  // Returns "cuda:0 (NVIDIA H200)", for messages.
  virtual std::string name() const = 0;
  // Throws Error(kDevice) with the requested size, the free memory and the total.
  virtual Memory allocate(size_t bytes) = 0;
  // Identifies the hardware: processes on one host that see the same id can share its memory.
  virtual std::string id() const = 0;
  // Like allocate. Other processes of this user can read the memory through `handle`. The caller
  // must make sure that they have stopped before the memory is freed.
  virtual Memory allocate_shared(size_t bytes, std::string& handle) = 0;
  // Maps another process's device memory for reading until the last holder of the result releases
  // it. Throws Error(kProtocol) that says why it cannot be opened.
  virtual std::shared_ptr<const void> open_shared(const std::string& handle, size_t bytes) = 0;
  virtual std::unique_ptr<Stream> stream() = 0;
  virtual std::unique_ptr<Event> event(bool timed = false) = 0;
  // Registers whole pages of host memory, so that copies to and from them are direct (DMA). Any
  // thread. The last holder of the result ends the registration, and must do so before the pages
  // are unmapped. Returns null, with the reason in `why`, if the system refuses; copies still work,
  // but more slowly.
  virtual std::shared_ptr<void> register_pages(std::byte* first, size_t bytes, Access access,
                                               std::string& why) = 0;
};

// Returns true if this build includes CUDA.
bool compiled();
// Returns the number of usable CUDA devices; if it is 0, `why` gives the reason. Creates no context
// on any of them.
int count(std::string* why = nullptr);
// The memory of the devices that this process has opened, together. Bytes in use are those of all
// processes, as the driver counts them.
struct MemoryUse {
  int64_t used_bytes = 0;
  int64_t total_bytes = 0;  // 0: this process has opened no device
};

// Asks the driver, which takes less than a millisecond. Any thread.
MemoryUse memory_use();

// Puts it into a report to the coordinator.
//   Stats: wire::Stats, which this room does not know.
template <class Stats>
void put_memory_use(const MemoryUse& use, Stats& stats) {
  stats.set_device_used_kib(use.used_bytes / 1024);
  stats.set_device_kib(use.total_bytes / 1024);
}

// Throws Error(kDevice) if there is no driver, no such device, or no code for it in this build, and
// says how to fix it.
std::shared_ptr<Device> open(const DeviceName& name);

// Returns an allocator that gets memory from `inner`, in whole pages, and keeps it registered until
// it is freed. Thread-safe if `inner` is.
//   refused: called once with the reason if the system does not register the memory, which is still
//     used.
FloatAllocator registered(std::shared_ptr<Device> device, FloatAllocator inner,
                          std::function<void(const std::string& why)> refused);

// Returns a PagesMapped for common/shm/segment.h: it registers mapped pages that another process
// writes, until the last holder of the result releases them.
//   refused: as above.
std::function<std::shared_ptr<void>(std::byte* first, size_t bytes)> register_mapped(
    std::shared_ptr<Device> device, std::function<void(const std::string& why)> refused);

// Device memory as a FloatAllocator. Use it on the device's thread.

// Returns an allocator of zeroed memory on `device`; each buffer keeps `device` alive. The
// allocator throws Error(kDevice) if the device has no free memory.
inline FloatAllocator device_floats(std::shared_ptr<Device> device) {
  struct Buffer {
    std::shared_ptr<Device> device;
    Memory memory;  // destroyed first
  };
  return [device = std::move(device)](size_t floats) -> std::shared_ptr<float[]> {
    auto buffer =
        std::make_shared<Buffer>(Buffer{device, device->allocate(floats * sizeof(float))});
    float* const first = buffer->memory.floats();
    return {std::move(buffer), first};
  };
}

}  // namespace pushpull::device
