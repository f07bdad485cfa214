// The memory that the threads of a block share, 48 KiB, filled with NaN for each block. The
// launch's dynamic memory ends at an inaccessible page; variables are surrounded by NaN, which is
// checked when the block ends.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cuda_on_host {

class SharedMemory {
 public:
  SharedMemory();

  // Prepares the memory for a block.
  void begin(size_t launch_bytes);
  // Returns the variable's memory, the same for every thread of the block. Null if the block has no
  // room.
  void* variable(const char* function, int line, size_t bytes, size_t align);
  void* of_launch() const { return of_launch_; }
  // Returns a description of a write beside a variable, or "".
  std::string check() const;

 private:
  struct Variable {
    const char* function;
    int line;
    std::byte* first;
    size_t bytes;
  };

  std::byte* variables_;  // first of kArea bytes
  std::byte* end_;        // of the launch's dynamic memory
  std::byte* of_launch_ = nullptr;
  size_t launch_bytes_ = 0;
  size_t used_ = 0;  // bytes of variables_
  std::vector<Variable> known_;
};

SharedMemory& shared_memory();

}  // namespace cuda_on_host
