// Memory of a fake device: addresses that are accessible only while a device runs work. It is an
// unnamed file (memfd_create), so that other processes can map shared blocks.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/base/unique_fd.h"
#include "common/device/device.h"

namespace pushpull::device {

// Mapped pages. An access kills the process unless they are open. Thread-safe.
class FakePages {
 public:
  // Maps pages of a file. protection: the one while they are open.
  FakePages(int fd, size_t offset, size_t bytes, int protection);
  ~FakePages();
  FakePages(const FakePages&) = delete;
  FakePages& operator=(const FakePages&) = delete;

  std::byte* first() const { return first_; }
  size_t bytes() const { return bytes_; }
  bool holds(const void* first, size_t bytes) const;

  // Keeps the pages open while it lives.
  class Open {
   public:
    explicit Open(std::shared_ptr<FakePages> pages);
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    std::shared_ptr<FakePages> pages_;
  };

 private:
  void protect(int protection);

  std::byte* first_ = nullptr;
  const size_t bytes_;
  const int protection_;
  std::mutex mutex_;
  int open_ = 0;  // guarded by mutex_
};

// Thread-safe. Lives until its last Memory is freed.
class FakeMemory : public std::enable_shared_from_this<FakeMemory> {
 public:
  // name: the device's.
  FakeMemory(std::string name, size_t bytes);

  // Returns zeroed memory; freed memory is filled with NaN and reused. Throws Error(kDevice) if
  // there is no room.
  Memory allocate(size_t bytes);
  // The same. While it is allocated, `open_fake` can map it with the handle, in any process.
  Memory allocate_shared(size_t bytes, std::string& handle);

  bool holds(const void* first, size_t bytes) const { return pages_->holds(first, bytes); }
  const std::shared_ptr<FakePages>& pages() const { return pages_; }

  // Fills memory of a fake device of this process with NaN. Returns false if no device owns it.
  static bool spoil(void* first, size_t bytes);

 private:
  std::byte* take(size_t bytes, size_t alignment);
  Memory own(std::byte* block, size_t bytes);
  static void free(void* first);

  const std::string name_;
  const UniqueFd file_;
  const std::shared_ptr<FakePages> pages_;
  std::mutex mutex_;
  std::map<size_t, size_t> used_;  // offset -> bytes; guarded by mutex_
};

// Maps shared memory of a fake device of this name, for reading. Throws Error(kProtocol) if there
// is none of so many bytes.
std::shared_ptr<FakePages> open_fake(const std::string& name, const std::string& handle,
                                     size_t bytes);

}  // namespace pushpull::device
