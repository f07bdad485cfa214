// Memory of a fake device: a range of addresses that is open only while the device runs something.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "common/device/device.h"

namespace pushpull::device {

// Thread-safe. Lives until the last Memory of it has ended.
class FakeMemory : public std::enable_shared_from_this<FakeMemory> {
 public:
  explicit FakeMemory(size_t bytes);
  ~FakeMemory();
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;

  // Zeroed; what is freed is filled with NaN and given out again. Throws Error(kDevice) where there
  // is no room.
  Memory allocate(size_t bytes);
  // ... which `find_shared` finds by this handle as long as it lives. Throws Error(kProtocol) where
  // there is none of so many bytes.
  Memory allocate_shared(size_t bytes, std::string& handle);
  static std::pair<std::shared_ptr<FakeMemory>, const std::byte*> find_shared(
      const std::string& handle, size_t bytes);

  // Open for as long as one of these lives.
  class Open {
   public:
    explicit Open(FakeMemory& memory) : memory_(memory) { memory_.open(); }
    ~Open() { memory_.close(); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    FakeMemory& memory_;
  };

  bool holds(const void* first, size_t bytes) const;

 private:
  void open();
  void close();
  void protect(int protection);
  static void free(void* first);

  std::byte* first_ = nullptr;
  size_t size_ = 0;
  std::mutex mutex_;
  int open_ = 0;                   // guarded by mutex_, as all below
  std::map<size_t, size_t> used_;  // offset -> bytes
};

}  // namespace pushpull::device
