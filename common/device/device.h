// A device beside the processor: its memory, and streams on which copies and kernels run in order.
// Made by CUDA (cuda/), by nothing in a build without it (no_cuda.cpp), or by a test. One thread at
// a time for a Device and what it has made; Memory and registrations may end on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/base/buffer_pool.h"
#include "common/device/device_name.h"
#include "common/device/slice_update.h"

namespace pushpull::device {

// A place in a stream's order: that of its latest record.
class Event {
 public:
  virtual ~Event() = default;
  // Also where it was never recorded. Throws Error(kDevice) where the device has failed.
  virtual bool done() = 0;
  // Blocks the host until it is done. Throws Error(kDevice) that names the device where it has
  // failed, or has not come so far within deadline_ms.
  virtual void wait(int64_t deadline_ms) = 0;
  // Of two timed events that are done.
  virtual double seconds_since(const Event& earlier) const = 0;
};

// Work that was recorded once and is launched as a whole. The events and the memory that it uses
// live at least as long.
class Graph {
 public:
  virtual ~Graph() = default;
};

// What is enqueued runs in order; nothing is known of the order between streams but what events
// say. Every call but `synchronize` returns before the work is done. Throws Error(kDevice).
class Stream {
 public:
  virtual ~Stream() = default;
  // Host memory that is registered is read or written when the turn comes, and must stay until
  // then. With other host memory the call returns when it has been read or written. copy_in takes
  // device memory too: of this device, or what `open_shared` has given; as registered.
  virtual void copy_in(const void* host, size_t bytes, void* to) = 0;
  virtual void copy_out(const void* from, size_t bytes, void* host) = 0;
  // right = left + right, element by element: the host's bits.
  virtual void add(const float* left, float* right, size_t n) = 0;
  // flag, in device memory, becomes 1 where one of x is NaN or infinite, else 0.
  virtual void find_non_finite(const float* x, size_t n, int32_t* flag) = 0;
  // Moves the tiles of `batch`, all in memory of the device but the struct itself.
  virtual void update(const SliceBatch& batch) = 0;
  // squares[t], in device memory: of the mean gradient, the sum over `divisor`, in tile t, of which
  // each is at most kNormBlock elements.
  virtual void square(const SliceBatch& batch, float divisor, double* squares) = 0;
  // `event` is done once everything enqueued here so far is.
  virtual void record(Event& event) = 0;
  // What is enqueued here from now on starts behind the latest record of `event`; at once where it
  // was never recorded.
  virtual void wait(const Event& event) = 0;
  // Calls `enqueue`, which uses this stream only and registered host memory only, and keeps what it
  // enqueues instead of running it. `record` and `wait` in it take effect at each launch. Null
  // where the device cannot: then nothing of it is kept and the same calls outside do. Passes on
  // what `enqueue` throws.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& enqueue) = 0;
  virtual void launch(Graph& graph) = 0;
  // Blocks the host until everything enqueued here is done.
  virtual void synchronize(int64_t deadline_ms) = 0;
};

// Device memory, zeroed when it was made, aligned to 256 bytes. Its end may wait for all that the
// device does.
class Memory {
 public:
  using Free = void (*)(void*);
  Memory() : bytes_(nullptr, nullptr) {}
  Memory(void* first, size_t size, Free free) : bytes_(first, free), size_(size) {}
  void* data() const { return bytes_.get(); }
  float* floats() const { return static_cast<float*>(bytes_.get()); }
  size_t size() const { return size_; }
  // Gives the bytes away, with the function that frees them.
  std::pair<void*, Free> release() {
    size_ = 0;
    const Free free = bytes_.get_deleter();
    return {bytes_.release(), free};
  }

 private:
  std::unique_ptr<void, Free> bytes_;
  size_t size_ = 0;
};

// What the device may do with host memory.
enum class Access { kReadWrite, kReadOnly };

class Device {
 public:
  virtual ~Device() = default;
  // "cuda:0 (NVIDIA H200)", for messages.
  virtual std::string name() const = 0;
  // Throws Error(kDevice): what was asked, what is free, of how much.
  virtual Memory allocate(size_t bytes) = 0;
  // The hardware. Processes of one machine that see the same id can share its memory.
  virtual std::string id() const = 0;
  // As allocate. handle: with it other processes of this user read the memory, until it ends here;
  // who shares it sees to it that they have stopped by then.
  virtual Memory allocate_shared(size_t bytes, std::string& handle) = 0;
  // Memory of another process, for reading, until the last holder of the result lets go. Throws
  // Error(kProtocol) that says what does not fit.
  virtual std::shared_ptr<const void> open_shared(const std::string& handle, size_t bytes) = 0;
  virtual std::unique_ptr<Stream> stream() = 0;
  virtual std::unique_ptr<Event> event(bool timed = false) = 0;
  // Whole pages of the host, so that copies to and from them go straight. Any thread. Released when
  // the last holder of the result lets go, which must be before the pages go. Null, with the reason
  // in `why`, where the system refuses: copies then take longer.
  virtual std::shared_ptr<void> register_pages(std::byte* first, size_t bytes, Access access,
                                               std::string& why) = 0;
};

// This build has CUDA in it.
bool compiled();
// CUDA devices that can be used; where there is none, `why` says the reason. Takes none into use.
int count(std::string* why = nullptr);
// Throws Error(kDevice): no driver, no such device, a device that we have no code for; with the way
// out.
std::shared_ptr<Device> open(const DeviceName& name);

// Memory of `inner` for as many floats, on whole pages of its own, registered for as long as it
// lives.
//   refused: told once why the system did not register it, and that it is used all the same.
// Thread-safe where `inner` is.
FloatAllocator registered(std::shared_ptr<Device> device, FloatAllocator inner,
                          std::function<void(const std::string& why)> refused);

// For pages that are mapped to read what another process writes there (PagesMapped of
// common/shm/segment.h): registers them until the last holder of the result lets go. refused: as
// above.
std::function<std::shared_ptr<void>(std::byte* first, size_t bytes)> register_mapped(
    std::shared_ptr<Device> device, std::function<void(const std::string& why)> refused);

}  // namespace pushpull::device
