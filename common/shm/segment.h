// Memory that one process writes and other processes of the same host and user read. A segment is
// an anonymous file (memfd_create, Linux) that its creator maps; others open it as /proc/PID/fd/FD.
// It has no name that could be guessed, squatted or left behind: it disappears with the last
// process that maps it, however that process ends. It is sealed against resizing, so that no reader
// can be killed by SIGBUS. Pools allocate buffers in segments. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "common/base/unique_fd.h"
#include "common/device/device.h"
#include "common/net/wire.pb.h"

namespace pushpull {

// A segment, with the description that other processes need to read it.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual std::byte* data() const = 0;
  // Returns the number of bytes that other processes may read.
  virtual size_t bytes() const = 0;
  virtual const wire::Segment& description() const = 0;
};

// Finds the shared segment that contains an address of this process. Thread-safe.
class SegmentIndex {
 public:
  SegmentIndex();

  struct Place {
    std::shared_ptr<const SharedMemory> segment;  // null if it is not in any segment
    int64_t offset = 0;                           // in bytes
  };
  // Returns the segment's memory. `find` finds the memory until its last holder releases it; it may
  // outlive the index.
  std::shared_ptr<float[]> add(std::shared_ptr<const SharedMemory> segment);
  // Returns the segment that contains all of these bytes.
  Place find(std::span<const std::byte> bytes) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Returns the properties that must be equal for two processes to share memory: boot id, process id
// namespace, user, network namespace. Returns "" if the system does not reveal them.
std::string host_identity();
// Returns why two identities cannot share memory, as a statement about the other side: "it is on
// another host". Returns "" if they can.
std::string host_difference(const std::string& theirs, const std::string& ours);

// Mapped pages; the destructor unmaps them.
class MappedPages {
 public:
  MappedPages() = default;
  MappedPages(void* first, size_t bytes) : first_(static_cast<std::byte*>(first)), bytes_(bytes) {}
  ~MappedPages();
  MappedPages(MappedPages&& other) noexcept;
  MappedPages& operator=(MappedPages&&) = delete;

  std::byte* first() const { return first_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* first_ = nullptr;
  size_t bytes_ = 0;
};

// Returns random bytes that identify one segment.
std::string fresh_token();

class Segment final : public SharedMemory {
 public:
  // Allocates at least `bytes` bytes, page-aligned and zeroed. All pages are allocated at once, so
  // later writes cannot fail. Throws Error(kFailed) with the size and the reason, also if less
  // memory is free.
  explicit Segment(size_t bytes);

  std::byte* data() const override { return pages_.first(); }
  // Excludes the token at the end of the file.
  size_t bytes() const override { return pages_.bytes() - kTokenBytes; }
  const wire::Segment& description() const override { return description_; }

  static constexpr size_t kTokenBytes = 16;

 private:
  UniqueFd fd_;
  MappedPages pages_;
  wire::Segment description_;
};

// Called with pages that are mapped for reading; its result is kept until they are unmapped. For
// devices that copy from them. May be empty.
using PagesMapped = std::function<std::shared_ptr<void>(std::byte* first, size_t bytes)>;

// Another process's segment, mapped for reading.
class Mapping {
 public:
  // Validates the segment before mapping it: that it is a segment, that we may read it, and that
  // its token is the announced one.
  //   max_bytes: larger files are rejected.
  // Throws Error(kProtocol) with the reason.
  Mapping(const wire::Segment& segment, int64_t max_bytes, const PagesMapped& mapped = {});

  std::span<const std::byte> bytes() const {
    return {pages_.first(), pages_.bytes() - Segment::kTokenBytes};
  }

 private:
  MappedPages pages_;
  std::shared_ptr<void> kept_;  // destroyed before the pages
};

// A SegmentPool for a device: allocates device memory that other processes read in place, and finds
// the segment of an address. Call `get` on the device's thread; `find` and the destruction of
// buffers are safe on any thread.
class DevicePool {
 public:
  // failed: called once with one line if other processes cannot read the device's memory.
  DevicePool(std::shared_ptr<device::Device> device,
             std::function<void(const std::string& why)> failed);

  // Returns device memory that lives as long as the buffer, which may outlive the pool. Throws
  // Error(kDevice) if the device has no free memory.
  std::shared_ptr<float[]> get(size_t floats);

  using Place = SegmentIndex::Place;
  Place find(std::span<const std::byte> bytes) const { return index_.find(bytes); }

  const std::shared_ptr<device::Device>& device() const { return device_; }

 private:
  const std::shared_ptr<device::Device> device_;
  SegmentIndex index_;
  std::function<void(const std::string&)> failed_;
  std::once_flag reported_;
};

// Allocates buffers in shared segments of this process and finds the segment of an address.
// Thread-safe.
class SegmentPool {
 public:
  // failed: called once with one line if no segment can be created and buffers come from the heap
  // instead.
  explicit SegmentPool(std::function<void(const std::string& why)> failed);

  // Returns a buffer in a segment of its own, or on the heap if the system provides none. The
  // contents are undefined. The buffer may outlive the pool.
  std::shared_ptr<float[]> get(size_t floats);

  using Place = SegmentIndex::Place;
  Place find(std::span<const std::byte> bytes) const { return index_.find(bytes); }

 private:
  SegmentIndex index_;
  std::function<void(const std::string&)> failed_;
  std::once_flag reported_;
};

}  // namespace pushpull
