// Memory pages shared between a process and the processes that it forks. Any thread.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/error.h"

namespace pushpull::floors {

class SharedPages {
 public:
  // bytes: 0 for none. Throws Error(kFailed) if the memory cannot be mapped.
  explicit SharedPages(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      throw Error(ErrorCode::kFailed,
                  "[floors] cannot map shared memory of " + std::to_string(bytes) + " bytes");
    }
    data_ = data;
    std::memset(data_, 1, bytes);
  }
  ~SharedPages() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  SharedPages(SharedPages&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  void* data() const { return data_; }  // null if bytes is 0

 private:
  size_t bytes_;
  void* data_ = nullptr;
};

}  // namespace pushpull::floors
