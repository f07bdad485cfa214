// Memory of a fake device: addresses that are open only while a device runs something. It is a file
// without a name (memfd_create), so that other processes can map what is shared.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/base/unique_fd.h"
#include "common/device/device.h"

namespace pushpull::device {

// Mapped pages that whoever touches them is killed for, but while they are open. Thread-safe.
class FakePages {
 public:
  // Of a file; protection: while they are open.
  FakePages(int fd, size_t offset, size_t bytes, int protection);
  ~FakePages();
  FakePages(const FakePages&) = delete;
  FakePages& operator=(const FakePages&) = delete;

  std::byte* first() const { return first_; }
  size_t bytes() const { return bytes_; }
  bool holds(const void* first, size_t bytes) const;

  // Open for as long as one of these lives.
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

// Thread-safe. Lives until the last Memory of it has ended.
class FakeMemory : public std::enable_shared_from_this<FakeMemory> {
 public:
  // name: of the device.
  FakeMemory(std::string name, size_t bytes);

  // Zeroed; what is freed is filled with NaN and given out again. Throws Error(kDevice) where there
  // is no room.
  Memory allocate(size_t bytes);
  // ... which `open_fake` maps anew, here or in another process, as long as it lives.
  Memory allocate_shared(size_t bytes, std::string& handle);

  bool holds(const void* first, size_t bytes) const { return pages_->holds(first, bytes); }
  const std::shared_ptr<FakePages>& pages() const { return pages_; }

  // Fills memory of some fake device of this process with NaN. False: it is of none.
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

// Shared memory of a fake device of this name, for reading. Throws Error(kProtocol) where there is
// none of so many bytes.
std::shared_ptr<FakePages> open_fake(const std::string& name, const std::string& handle,
                                     size_t bytes);

}  // namespace pushpull::device
