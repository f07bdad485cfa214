// The memory of the device: one file without a name, of which each allocation is a piece that ends
// where a page begins that nobody may touch. What is freed is never given out again, and nobody may
// touch it. What lies beside an allocation on its pages has a pattern (NaN) that is looked at.
//
// Nobody may touch an allocation either but work that runs: its first access opens it, in a signal
// handler, and it is shut again when the work ends. So the host's accesses show as well.
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
  static constexpr size_t kTotal = size_t{16} << 30;  // that the device says it has
  static constexpr size_t kAlign = 256;               // as cudaMalloc promises

  struct Allocation {
    size_t bytes;
    std::byte* pages;  // with the guard behind them
    size_t page_bytes;
    bool is_foreign;  // another process's
    bool is_open;
  };

  Arena();
  // Null: no room.
  void* allocate(size_t bytes);
  cudaError_t free(void* first);
  size_t used() const { return used_; }

  // The allocation that all of [first, first + bytes) lies in; null: none.
  const Allocation* find(const void* first, size_t bytes) const;
  // Sets bytes as memset does; whole pages of zeros are given back instead of being written.
  void set(void* first, int value, size_t bytes);
  // Lets whoever runs touch the allocation that `address` lies on the pages of; false: there is
  // none, or it is open. For a signal handler.
  bool open_at(const void* address);
  // Nobody may touch anything again. Where someone wrote beside an allocation; empty: nowhere.
  std::string shut();
  // About an address that could not be touched.
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
  uint64_t token_[2];  // which file it is
  std::map<uintptr_t, Allocation> all_;
  std::vector<uintptr_t> open_;  // with room for all, so that a handler needs none
};

}  // namespace cuda_on_host
