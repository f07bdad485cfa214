// The memory of the device, in one unnamed file. Each allocation ends at a page that is never
// accessible. Freed memory is never reused and becomes inaccessible. The rest of an allocation's
// pages has a pattern (NaN), which is checked.
//
// Only running work can access an allocation: its first access opens it, in a signal handler, and
// the end of the work closes it. So accesses by the host are detected too.
//
// Guarded by the runtime's lock.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cuda_on_host {

class Arena {
 public:
  static constexpr size_t kTotal = size_t{16} << 30;  // memory that the device reports
  static constexpr size_t kAlign = 256;               // alignment of cudaMalloc

  struct Allocation {
    size_t bytes;
    std::byte* pages;  // including the guard after them
    size_t page_bytes;
    bool is_foreign;  // opened from another process
    bool is_open;
  };

  Arena();
  // Returns null if there is no room.
  void* allocate(size_t bytes);
  cudaError_t free(void* first);
  size_t used() const { return used_; }

  // Returns the allocation that contains all of [first, first + bytes), or null.
  const Allocation* find(const void* first, size_t bytes) const;
  // Sets bytes as memset does; whole pages of zeros are released instead of being written.
  void set(void* first, int value, size_t bytes);
  // Makes the allocation on the page of `address` accessible. Returns false if there is none or it
  // is already open. For a signal handler.
  bool open_at(const void* address);
  // Makes all allocations inaccessible. Returns a description of a write beside an allocation, or
  // "".
  std::string shut();
  // Returns a description of an inaccessible address.
  std::string about(const void* address) const;

  cudaError_t share(const void* first, cudaIpcMemHandle_t& handle) const;
  cudaError_t open(const cudaIpcMemHandle_t& handle, void*& first);
  cudaError_t close(void* first);

 private:
  static std::string beside(uintptr_t first, const Allocation& of);

  int file_;
  std::byte* pages_;  // of the whole file
  size_t next_ = 0;   // in the file
  size_t used_ = 0;
  uint64_t token_[2];  // identifies the file
  std::map<uintptr_t, Allocation> all_;
  std::vector<uintptr_t> open_;  // capacity for all, so that the signal handler does not allocate
};

}  // namespace cuda_on_host
