// The memory that the threads of a block share, 48 KiB, filled with NaN for each block. What the
// launch asks for ends where a page begins that nobody may touch; variables have NaN around them,
// which is looked at when the block ends.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cuda_on_host {

class SharedMemory {
 public:
  SharedMemory();

  // A block begins.
  void begin(size_t launch_bytes);
  // The same for every thread of the block. Null: more than a block may have.
  void* variable(const char* function, int line, size_t bytes, size_t align);
  void* of_launch() const { return of_launch_; }
  // Whether someone wrote beside a variable.
  std::string check() const;

 private:
  struct Variable {
    const char* function;
    int line;
    std::byte* first;
    size_t bytes;
  };

  std::byte* variables_;  // first of kArea bytes
  std::byte* end_;        // of what launches ask for
  std::byte* of_launch_ = nullptr;
  size_t launch_bytes_ = 0;
  size_t used_ = 0;  // of variables_
  std::vector<Variable> known_;
};

SharedMemory& shared_memory();

}  // namespace cuda_on_host
